/** Which model a request of the guest is for. Refuses every name that the host does not allow. */
import type { CompletionRequest } from '#specs/protocol/completion-request.ts'
import type { Result } from '#specs/protocol/error.ts'
import { findModelProblem } from '#specs/protocol/run-models.ts'
import { gatewayError, type WireError } from '../net/gateway-error.ts'
import type { ModelProvider } from '../providers/providers.ts'

export interface AllowedModels {
  readonly provider: ModelProvider
  /** What a request may ask for, by name; where there are none, every request is for the provider's model. */
  readonly stepModels: ReadonlyMap<string, ModelProvider>
  /** Another name of the provider's model. */
  readonly ownName?: string
}

export interface ChosenModel {
  /** Absent: the run's own. */
  readonly name: string | undefined
  readonly model: ModelProvider
}

/** @param asked the field `model` of the request */
export function chooseModel(
  asked: string | undefined,
  { provider, stepModels, ownName }: AllowedModels,
): Result<ChosenModel, WireError> {
  const own = { ok: true, value: { name: undefined, model: provider } } as const
  if (asked === undefined || stepModels.size === 0) return own
  const model = stepModels.get(asked)
  if (model !== undefined) return { ok: true, value: { name: asked, model } }
  if (asked === provider.model || asked === ownName) return own
  const problem = findModelProblem(asked, [...stepModels.keys()])
  return { ok: false, error: gatewayError('invalid_request', `${problem}.`) }
}

/** The request as an upstream gets it, with a model only where that is not the run's own. */
export function requestFor(
  { model: _, ...request }: CompletionRequest,
  name: string | undefined,
): CompletionRequest {
  return name === undefined ? request : { model: name, ...request }
}
