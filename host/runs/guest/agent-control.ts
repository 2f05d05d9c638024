/**
 * What people do to the agent of a run while it works: messages for it, and whether it holds. Each is journaled before it
 * is sent, and sent in the order in which it was said; what cannot reach the agent now waits for it.
 */

import { randomBytes } from 'node:crypto'
import { errorMessage } from '#specs/errors.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { RpcFailure } from '#specs/protocol/peer.ts'

/** The agent that has the task. */
export interface ControlledAgent {
  /** False while its VM is saved or stands still: what is sent then waits. */
  readonly isReachable: boolean
  steer(messageId: string, text: string): Promise<Result<unknown, RpcFailure>>
  setTaskPaused(paused: boolean): Promise<Result<unknown, RpcFailure>>
}

export interface AgentControlOptions {
  /** Journals a fact. */
  readonly note: (event: HostEvent) => Promise<void>
  /** Called when the agent is to hold (+1) and when it is to go on (-1): the run's time stands still meanwhile. */
  readonly onHold: (change: number) => void
}

type Send = (agent: ControlledAgent) => Promise<Result<unknown, RpcFailure>>

export class AgentControl {
  readonly #options: AgentControlOptions
  readonly #begun = Promise.withResolvers<ControlledAgent | null>()
  #agent: ControlledAgent | null = null
  #isOver = false
  #isPaused = false
  #isHeld = false
  /** Messages that have not reached the agent. */
  #waiting = 0
  #last: Promise<unknown> = Promise.resolve()

  constructor(options: AgentControlOptions) {
    this.#options = options
  }

  /** Whether the agent was told to hold. */
  get isPaused(): boolean {
    return this.#isPaused
  }

  /** The agent has the task. */
  begin(agent: ControlledAgent): void {
    if (this.#isOver) return
    this.#agent = agent
    this.#holdOrNot()
    this.#begun.resolve(agent)
  }

  /** Nothing reaches the agent any more; one that holds is let go, so that it can end. */
  end(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#isPaused = false
    this.#holdOrNot()
    this.#begun.resolve(null)
  }

  /**
   * A message for the agent, which has it in its conversation from its next turn on. Resolves when the agent has it, or at
   * once where it cannot be reached now and will get it later.
   * @returns why it was not taken; undefined when it was
   */
  async steer(text: string, by: string): Promise<string | undefined> {
    if (this.#isOver) return over
    if (text.trim() === '') return 'the message is empty'
    if (text.length > limits.textMaxChars)
      return `the message is longer than ${limits.textMaxChars} characters; put it into a file of the workspace`
    if (this.#waiting >= limits.steerMaxPending) return 'too many messages wait for the agent already'
    const messageId = `m-${randomBytes(10).toString('hex')}`
    const message = text.toWellFormed()
    const problem = await this.#note({ type: 'steer-request', messageId, text: message, by: lineOf(by) })
    if (problem !== undefined) return problem
    this.#waiting += 1
    return await this.#deliver(async (agent) => {
      const answer = await agent.steer(messageId, message)
      this.#waiting -= 1
      return answer
    })
  }

  /**
   * Has the agent hold before its next effect, or go on. Resolves like {@link steer}; saying the same twice changes nothing.
   * @returns why that cannot be; undefined when it can
   */
  async setPaused(paused: boolean, by: string): Promise<string | undefined> {
    if (this.#isOver) return over
    if (this.#isPaused === paused) return undefined
    this.#isPaused = paused
    const problem = await this.#note({ type: paused ? 'pause-request' : 'resume-request', by: lineOf(by) })
    if (problem !== undefined) return problem
    this.#holdOrNot()
    return await this.#deliver((agent) => agent.setTaskPaused(paused))
  }

  /** The run's time stands still as long as an agent that has the task is to hold. */
  #holdOrNot(): void {
    const isHeld = this.#isPaused && this.#agent !== null
    if (isHeld === this.#isHeld) return
    this.#isHeld = isHeld
    this.#options.onHold(isHeld ? 1 : -1)
  }

  async #note(event: HostEvent): Promise<string | undefined> {
    try {
      await this.#options.note(event)
      return undefined
    } catch (error) {
      return `it could not be recorded: ${errorMessage(error)}`
    }
  }

  async #deliver(send: Send): Promise<string | undefined> {
    const sent = this.#last.then(async () => {
      const agent = await this.#begun.promise
      return agent === null ? over : await wordsOf(send(agent))
    })
    this.#last = sent
    return this.#agent?.isReachable === true ? await sent : undefined
  }
}

const over = 'the run has ended, or is about to'

async function wordsOf(sent: Promise<Result<unknown, RpcFailure>>): Promise<string | undefined> {
  const answer = await sent
  return answer.ok ? undefined : `the agent did not take it: ${answer.error.message}`
}

function lineOf(text: string): string {
  return text.toWellFormed().slice(0, limits.lineMaxChars)
}
