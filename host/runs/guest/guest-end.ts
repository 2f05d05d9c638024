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
/** Of it, what the guest wrote last: a screen shows all of that. */
const consoleMaxChars = 1_500

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

/** Names a panic of the guest's kernel, and ends with the last lines of its console. */
export function describeVmExit(exit: VmExit): string {
  const { reason, signal, code, detail, stderrTail, consoleTail } = exit
  const panic = panicOf(exit)
  const how =
    panic === undefined
      ? `the VM ended in the middle of the run (${reason}, ${signal ?? `code ${code}`})`
      : `the kernel of the VM panicked in the middle of the run (${panic})`
  const rest = [detail, stderrTail, consoleTail.trimEnd().slice(-consoleMaxChars)]
  return [how, ...rest]
    .filter((part) => part)
    .join('\n')
    .slice(0, messageMaxChars)
    .toWellFormed()
}

const panicLine = /Kernel panic - not syncing: ?([^\r\n]{0,200})/g

/**
 * The cause as the kernel wrote it. QEMU's report of a reset is no text of the guest;
 * the guest could only write another cause.
 */
function panicOf({ detail, consoleTail }: VmExit): string | undefined {
  if (detail !== 'guest-reset') return undefined
  const found = [...consoleTail.matchAll(panicLine)].at(-1)
  if (found === undefined) return undefined
  return found[1]?.trim() || 'no cause'
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
