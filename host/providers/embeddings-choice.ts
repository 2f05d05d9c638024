/** Selects the embeddings server from the configuration only; errors name that setting. */
import type { Result } from '#specs/protocol/error.ts'
import type { Config } from '../config/schema.ts'
import { withoutEmbeddings } from './model-choice.ts'
import { chooseProvider, type ProviderChoice, type ProviderQuestion } from './providers.ts'

export interface EmbeddingsProblem {
  /** `setting`: the configuration is wrong; `provider`: a key or something else on this machine. */
  readonly kind: 'setting' | 'provider'
  /** Names the setting and what to do. */
  readonly message: string
}

const setting = 'embeddings.model in the configuration'

/** Undefined if the configuration names no model. */
export function chooseEmbeddings(
  config: Config,
  { env, storedKeys = [] }: Pick<ProviderQuestion, 'env' | 'storedKeys'>,
): Result<ProviderChoice | undefined, EmbeddingsProblem> {
  if (config.embeddings === undefined) return { ok: true, value: undefined }
  const { model } = config.embeddings
  const chosen = chooseProvider({ env, config, storedKeys, model, purpose: 'embeddings' })
  if (!chosen.ok)
    return { ok: false, error: { kind: 'provider', message: `${setting}: ${chosen.error.message}` } }
  if (chosen.value.baseUrl !== null) return chosen
  const message = `${setting}: the offline model has no embeddings; use a model of a server, or ${withoutEmbeddings}`
  return { ok: false, error: { kind: 'setting', message } }
}
