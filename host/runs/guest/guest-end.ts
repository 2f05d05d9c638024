/**
 * Tracks how the guest's work ends: a completion, a lost agent, or a lost VM. Turns each into the run's failure; the
 * first one counts.
 */
import { CaissonError, type ErrorCode, errorMessage } from '#specs/errors.ts'
import type { RpcFailure } from '#specs/protocol/peer.ts'
import type { Completion } from '#specs/protocol/task.ts'
import type { LinkEnd } from '../../guest/agent-link.ts'
import type { VmExit } from '../../vm/vm.ts'

/** Maximum length of a failure that contains the last output of a VM. */
const messageMaxChars = 8_000

export class WorkEnds {
  readonly #completed = Promise.withResolvers<Completion>()
  /** The agent process of this run is gone or no longer trusted; another may answer instead. */
  readonly #agentLost = Promise.withResolvers<never>()
  /** No answer is possible: the VM or the link is gone, or the journal cannot be written. */
  readonly #lost = Promise.withResolvers<never>()
  #hasCompleted = false

  constructor() {
    this.#lost.promise.catch(() => undefined)
    this.#agentLost.promise.catch(() => undefined)
  }

  get hasCompleted(): boolean {
    return this.#hasCompleted
  }

  complete(completion: Completion): void {
    this.#hasCompleted = true
    this.#completed.resolve(completion)
  }

  loseAgent(code: ErrorCode, message: string): void {
    this.#agentLost.reject(new CaissonError(code, message))
  }

  lose(cause: unknown): void {
    this.#lost.reject(cause)
  }

  /** Resolves like `work`, and rejects when the VM or the link is lost. */
  orLost<T>(work: Promise<T>): Promise<T> {
    return Promise.race([work, this.#lost.promise])
  }

  /** @throws {CaissonError} `agent_lost`, `vm_lost`, `protocol_violation` when the agent or the VM is lost */
  completion(): Promise<Completion> {
    return this.orLost(Promise.race([this.#completed.promise, this.#agentLost.promise]))
  }
}

export function describeVmExit({ reason, signal, code, detail, stderrTail, consoleTail }: VmExit): string {
  const tail = [detail, stderrTail, consoleTail].filter((part) => part).join('\n')
  const how = `${reason}, ${signal ?? `code ${code}`}`
  return `the VM ended in the middle of the run (${how})\n${tail}`.slice(0, messageMaxChars)
}

export function failureOfWake(cause: unknown): CaissonError {
  return new CaissonError(
    'vm_lost',
    `the saved VM did not resume: ${errorMessage(cause)}`.slice(0, messageMaxChars),
  )
}

export function failureOfLink({ reason, message }: LinkEnd): CaissonError {
  return new CaissonError(reason === 'protocol_mismatch' ? 'version_mismatch' : 'agent_lost', message)
}

/**
 * @param doing the host's request
 * @param consoleText the guest's console output so far
 */
export function failureOfAnswer(
  doing: string,
  { code, message }: RpcFailure,
  consoleText: string,
): CaissonError {
  if (code === 'cancelled') return new CaissonError('cancelled', `cancelled while ${doing}`)
  const tail = consoleText.split('\n').slice(-15).join('\n')
  return new CaissonError(
    'agent_lost',
    `${doing}: ${message} (${code})\nthe guest's console ends with:\n${tail}`,
  )
}
