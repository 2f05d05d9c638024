/** What the library throws: a model's failure as an error, and a configuration that cannot be used. Neither shows a key. */
import { CaissonError, type ErrorCode } from '#specs/errors.ts'
import { type ModelError, type ModelErrorCode, reasonOf } from '../llm/errors.ts'

/** A request to a model failed for good. A cancelled one throws its signal's reason instead. */
export class LLMError extends CaissonError {
  override readonly name = 'LLMError'
  readonly provider: string
  /** What failed in particular; `code` is the common one. */
  readonly kind: ModelErrorCode
  /** HTTP status; null when there was no answer, or the failure lay within a stream. */
  readonly status: number | null
  /** Whether the same request may succeed later. */
  readonly retryable: boolean
  /** The server's own wish for a pause; null when it gave none. */
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

/** A provider is not known, or lacks something; the message says what and where it is given. */
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
