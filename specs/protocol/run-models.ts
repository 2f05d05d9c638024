/** Models that a run may use besides its own. */
import * as z from 'zod'

/** As a provider knows the model. */
export const ModelId = z.string().regex(/^[\x21-\x7e]{1,200}$/, 'expected a model id')

/** Models that are asked in this order where another one of the run cannot answer. */
export const FallbackModels = z.array(ModelId).max(8)
