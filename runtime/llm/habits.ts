/**
 * Quirks of a provider learned during a run: whether it streams reliably, requires the model's reasoning back, and
 * rejects optional fields. Learned from failures alone; each change happens once, so requests never loop.
 */
import type { ModelError, ModelErrorCode } from './errors.ts'

/** Failures of a streamed answer that a complete one would avoid, with their weights. */
const streamFaults: Partial<Record<ModelErrorCode, number>> = {
  stream_refused: 2,
  broken: 2,
  nameless_call: 2,
  truncated: 1,
  empty: 1,
}
/** Total weight at which streaming is disabled. */
const faultsMax = 2

export class ProviderQuirks {
  /** Since the last complete turn. */
  #faults = 0
  /** Over the whole run: these failures depend on what the model writes. */
  #cutArguments = 0
  #triedWhole = false
  /** Whether streaming is requested. */
  stream = true
  /** Whether the reasoning before calls is sent back. */
  echoReasoning = false
  /** Whether token counts are requested at the end of a stream. */
  countTokens = true
  /** Whether a reasoning effort is sent. */
  sendEffort = true

  /** @param known quirks learned earlier for the same model, except about streaming */
  constructor(known?: ProviderQuirks) {
    if (known === undefined) return
    this.echoReasoning = known.echoReasoning
    this.countTokens = known.countTokens
    this.sendEffort = known.sendEffort
  }

  /** Whether another form of the request may avoid truncated arguments. */
  get mayRepairArguments(): boolean {
    return this.stream && !this.#triedWhole
  }

  noteSuccess(): void {
    this.#faults = 0
  }

  /** Records a failure; true when the request should be repeated at once in another form. */
  adapt(error: ModelError): boolean {
    if (!this.echoReasoning && wantsReasoning(error)) {
      this.echoReasoning = true
      return true
    }
    if (this.#dropRefused(error)) return true
    return this.stream ? this.#leaveStreams(error) : this.#returnToStreams(error)
  }

  /** Optional fields whose absence does not change the request. */
  #dropRefused(error: ModelError): boolean {
    if (error.code !== 'invalid_request' && error.code !== 'unprocessable') return false
    if (this.countTokens && /\b(stream_options|include_usage)\b/.test(error.message)) {
      this.countTokens = false
      return true
    }
    if (this.sendEffort && /\breasoning_effort\b/.test(error.message)) {
      this.sendEffort = false
      return true
    }
    return false
  }

  #leaveStreams({ code }: ModelError): boolean {
    if (code === 'cut_arguments') this.#cutArguments++
    else this.#faults += streamFaults[code] ?? 0
    if (this.#faults + this.#cutArguments < faultsMax || this.#triedWhole) return false
    this.stream = false
    this.#triedWhole = true
    return true
  }

  /** Some servers only stream, and a long unstreamed answer may exceed every timeout. */
  #returnToStreams({ code }: ModelError): boolean {
    this.stream = code === 'stream_required' || code === 'timed_out'
    return this.stream
  }
}

function wantsReasoning({ code, message }: ModelError): boolean {
  return (code === 'invalid_request' || code === 'unprocessable') && /\breasoning_content\b/.test(message)
}
