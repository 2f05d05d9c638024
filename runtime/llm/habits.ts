/**
 * What one run has learned of its provider: whether it streams well enough to be asked for streams, whether it wants the
 * model's reasoning back, and which harmless fields it refuses. Learned from failures alone; each change is made once, so that no request is made in circles.
 */
import type { ModelError, ModelErrorCode } from './errors.ts'

/** Failures of a streamed answer that a whole one would not have, and what each weighs. */
const streamFaults: Partial<Record<ModelErrorCode, number>> = {
  stream_refused: 2,
  broken: 2,
  nameless_call: 2,
  truncated: 1,
  empty: 1,
}
/** The weight at which streams are given up. */
const faultsMax = 2

export class ProviderQuirks {
  /** Since the last turn that came whole. */
  #faults = 0
  /** In the whole run: they come and go with what the model writes. */
  #cutArguments = 0
  #triedWhole = false
  /** Whether answers are asked for as streams. */
  stream = true
  /** Whether the reasoning before calls is sent back with them. */
  echoReasoning = false
  /** Whether the server is asked to count tokens at the end of a stream. */
  countTokens = true
  /** Whether the server is told how long the model is to think. */
  sendEffort = true

  /** @param known what was learned of the same model before; of how it streams nothing is taken over */
  constructor(known?: ProviderQuirks) {
    if (known === undefined) return
    this.echoReasoning = known.echoReasoning
    this.countTokens = known.countTokens
    this.sendEffort = known.sendEffort
  }

  /** Whether another form of the request may bring arguments that are not cut. */
  get mayRepairArguments(): boolean {
    return this.stream && !this.#triedWhole
  }

  noteSuccess(): void {
    this.#faults = 0
  }

  /** Takes a failure in; true when the request is to be made at once in another form. */
  adapt(error: ModelError): boolean {
    if (!this.echoReasoning && wantsReasoning(error)) {
      this.echoReasoning = true
      return true
    }
    if (this.#dropRefused(error)) return true
    return this.stream ? this.#leaveStreams(error) : this.#returnToStreams(error)
  }

  /** Fields without which the same is asked. */
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

  /** Some answer only in streams, and a long answer in one piece may pass every time-out. */
  #returnToStreams({ code }: ModelError): boolean {
    this.stream = code === 'stream_required' || code === 'timed_out'
    return this.stream
  }
}

function wantsReasoning({ code, message }: ModelError): boolean {
  return (code === 'invalid_request' || code === 'unprocessable') && /\breasoning_content\b/.test(message)
}
