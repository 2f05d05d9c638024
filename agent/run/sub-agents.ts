/**
 * The sub-agents of a run that a person can reach by their path: passes messages to one of them, and cancels one. Knows
 * who is at work or queued; refuses every other path and names those that there are.
 */
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { HandlerFailure } from '#specs/protocol/peer.ts'
import type { Task } from '#specs/protocol/task.ts'
import { Steering, type SteerMessage } from './steering.ts'

type Answer = Result<Record<string, never>, HandlerFailure>
const done: Answer = { ok: true, value: {} }

/** Maximum number of paths that an error names. */
const namedMaxCount = 20

/** A sub-agent from its admission to its end. */
export interface ReachableAgent {
  readonly steering: Steering
  /** Aborted when the person cancels it; of one that was cancelled before a loss, from its beginning. */
  readonly cancelled: AbortSignal
  /** Why the person cancelled it; empty without a reason. */
  readonly reason: string
  /** It can no longer be reached. Returns the messages that it has not seen. */
  end(): readonly SteerMessage[]
}

interface Entry {
  readonly steering: Steering
  readonly controller: AbortController
}

export class SubAgents {
  readonly #steering: Steering
  readonly #reachable = new Map<string, Entry>()
  /** Why each was cancelled, by path. */
  readonly #cancelled = new Map<string, string>()
  /** Messages for sub-agents that begin again, by path. */
  readonly #early = new Map<string, SteerMessage[]>()
  /** Ids of taken messages: one that is sent again after its sub-agent has ended was taken. */
  readonly #known = new Set<string>()

  /** @param steering of the run, which has the pause */
  constructor(steering: Steering, task: Pick<Task, 'messages' | 'cancelledAgents'> = {}) {
    this.#steering = steering
    for (const { agentPath, reason } of task.cancelledAgents ?? []) this.#cancelled.set(agentPath, reason)
    for (const message of task.messages ?? []) {
      const { agentPath } = message
      if (!isSubAgent(agentPath)) continue
      this.#know(message.messageId)
      this.#early.set(agentPath, [...(this.#early.get(agentPath) ?? []), message])
    }
  }

  begin(agentPath: string): ReachableAgent {
    const steering = new Steering(this.#steering)
    for (const message of this.#early.get(agentPath) ?? []) steering.push(message)
    this.#early.delete(agentPath)
    const controller = new AbortController()
    if (this.#cancelled.has(agentPath)) controller.abort()
    const cancelled = this.#cancelled
    this.#reachable.set(agentPath, { steering, controller })
    return {
      steering,
      cancelled: controller.signal,
      get reason() {
        return cancelled.get(agentPath) ?? ''
      },
      end: () => {
        this.#reachable.delete(agentPath)
        return steering.close()
      },
    }
  }

  /** Messages for sub-agents that did not begin again. */
  close(): readonly SteerMessage[] {
    const unseen = [...this.#early.values()].flat()
    this.#early.clear()
    return unseen
  }

  /** Failures: `busy` while too many are unseen, `notFound` for a path that nobody has now. */
  steer(agentPath: string, message: SteerMessage): Answer {
    if (this.#known.has(message.messageId)) return done
    const entry = this.#reachable.get(agentPath)
    if (entry === undefined) return this.#unknown(agentPath)
    const taken = entry.steering.push(message)
    if (taken === 'over') return this.#unknown(agentPath)
    if (taken === 'busy')
      return failure('busy', `too many messages wait to be seen by ${agentPath}; send the next one later`)
    this.#know(message.messageId)
    return done
  }

  /** Failure: `notFound` for a path that nobody has now. */
  cancel(agentPath: string, reason: string): Answer {
    if (this.#cancelled.has(agentPath)) return done
    const entry = this.#reachable.get(agentPath)
    if (entry === undefined) return this.#unknown(agentPath)
    this.#cancelled.set(agentPath, reason)
    entry.controller.abort()
    return done
  }

  #know(messageId: string): void {
    this.#known.add(messageId)
    const [oldest] = this.#known
    if (this.#known.size > limits.pendingMaxRequests && oldest !== undefined) this.#known.delete(oldest)
  }

  #unknown(agentPath: string): Answer {
    const paths = [...this.#reachable.keys()]
    const named = paths.length === 0 ? 'none is' : `these are: ${paths.slice(0, namedMaxCount).join(', ')}`
    return failure('notFound', `no sub-agent ${agentPath} is at work; ${named}`)
  }
}

/** Whether a message or a request is for a sub-agent. */
export function isSubAgent(agentPath: string | undefined): agentPath is string {
  return agentPath !== undefined && agentPath !== 'root'
}

function failure(code: HandlerFailure['code'], message: string): Answer {
  return { ok: false, error: { code, message } }
}
