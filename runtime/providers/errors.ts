/** The library's errors: a model's failure, and an unusable configuration. Neither shows a key. */
import { CaissonError, type ErrorCode } from '#specs/errors.ts'
import { type ModelError, type ModelErrorCode, reasonOf } from '#specs/node/model-protocols/model-error.ts'

/** A request to a model finally failed. A cancelled one throws its signal's reason instead. */
export class LLMError extends CaissonError {
  override readonly name = 'LLMError'
  readonly provider: string
  /** The specific failure; `code` is the common one. */
  readonly kind: ModelErrorCode
  /** HTTP status; null without an answer, or when the failure was inside a stream. */
  readonly status: number | null
  /** Whether the same request may succeed later. */
  readonly retryable: boolean
  /** Delay requested by the server; null when it gave none. */
  readonly retryAfterMs: number | null

  constructor(provider: string, error: ModelError) {
    super(codeOf(error), `the request to ${provider} failed (${error.code}): ${error.message}`)
    this.provider = provider
    this.kind = error.code
    this.status = error.status
    this.retryable = error.retryable
    this.retryAfterMs = error.retryAfterMs
  }
}

/** A provider is unknown or incomplete; the message says what is missing and where to set it. */
export class LLMConfigurationError extends CaissonError {
  override readonly name = 'LLMConfigurationError'

  constructor(message: string, options?: ErrorOptions) {
    super('provider_unavailable', message, options)
  }
}

function codeOf(error: ModelError): ErrorCode {
  const reason = reasonOf(error)
  return reason === 'model_unreachable' || reason === 'model_refused' ? reason : 'model_broken'
}
