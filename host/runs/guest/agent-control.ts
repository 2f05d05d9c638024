/**
 * Steers and pauses the agent of a running run. Each command is journaled first and sent in order. Commands that cannot
 * reach the agent now are queued.
 */
import { randomBytes } from 'node:crypto'
import { errorMessage } from '#specs/errors.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { RpcFailure } from '#specs/protocol/peer.ts'

/** A message of a person, for the root agent or one sub-agent. */
export interface AgentMessage {
  readonly messageId: string
  readonly text: string
  readonly agentPath?: string | undefined
}

/** The agent that runs the task. */
export interface ControlledAgent {
  /** False while the VM is saved or paused; commands are queued meanwhile. */
  readonly isReachable: boolean
  steer(message: AgentMessage): Promise<Result<unknown, RpcFailure>>
  cancelAgent(agentPath: string, reason: string): Promise<Result<unknown, RpcFailure>>
  setTaskPaused(paused: boolean): Promise<Result<unknown, RpcFailure>>
}

interface AgentControlOptions {
  /** Writes an event to the journal. */
  readonly note: (event: HostEvent) => Promise<void>
  /** Paths of the sub-agents at work. */
  readonly agentsAtWork: () => readonly string[]
  /** Called when the agent is paused (+1) and when it resumes (-1). The run's deadline pauses meanwhile. */
  readonly onHold: (change: number) => void
}

type Send = (agent: ControlledAgent) => Promise<Result<unknown, RpcFailure>>

export class AgentControl {
  readonly #options: AgentControlOptions
  #started = Promise.withResolvers<ControlledAgent | null>()
  /** Messages of the run that reached an agent; another one gets them all, and knows which are old. */
  readonly #sent: AgentMessage[] = []
  #agent: ControlledAgent | null = null
  #isOver = false
  #isLost = false
  #isPaused = false
  #resumed = Promise.withResolvers<void>()
  #isHeld = false
  /** Number of messages that have not reached the agent. */
  #waiting = 0
  #last: Promise<unknown> = Promise.resolve()

  constructor(options: AgentControlOptions) {
    this.#options = options
  }

  /** Whether the agent was asked to pause. */
  get isPaused(): boolean {
    return this.#isPaused
  }

  /** Resolves when the agent is not asked to pause. */
  async whenResumed(): Promise<void> {
    while (this.#isPaused) await this.#resumed.promise
  }

  /** Whether the agent is gone and another one will begin. */
  get isLost(): boolean {
    return this.#isLost
  }

  /** Called when the agent has accepted the task. */
  begin(agent: ControlledAgent): void {
    if (this.#isOver) return
    const isAnother = this.#isLost
    this.#agent = agent
    this.#isLost = false
    this.#holdOrNot()
    if (isAnother) void this.#tellAgain(agent)
    this.#started.resolve(agent)
  }

  /** The agent is gone, and another one will begin. */
  lose(): void {
    if (this.#isOver) return
    this.#agent = null
    this.#isLost = true
    this.#holdOrNot()
    this.#started = Promise.withResolvers()
  }

  /** Takes what agents before were sent, by another process. */
  restore(messages: readonly AgentMessage[]): void {
    this.#sent.push(...messages)
    this.#isLost = true
  }

  /** What an agent before was sent; one that knows a message ignores it. */
  async #tellAgain(agent: ControlledAgent): Promise<void> {
    for (const message of [...this.#sent]) await agent.steer(message)
    if (this.#isPaused) await agent.setTaskPaused(true)
  }

  /** Stops sending commands. A paused agent resumes so that it can finish. */
  end(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#setPaused(false)
    this.#holdOrNot()
    this.#started.resolve(null)
  }

  /**
   * Queues a message for the agent's next turn. Resolves when the agent has it, or at once if the agent is unreachable
   * and gets it later.
   * @param agentPath a sub-agent at work; absent: the root agent
   * @returns why the message was refused; undefined on success
   */
  async steer(text: string, by: string, agentPath?: string): Promise<string | undefined> {
    if (this.#isOver) return over
    const unknown = agentPath === undefined ? undefined : this.#findUnknown(agentPath)
    if (unknown !== undefined) return unknown
    if (text.trim() === '') return 'the message is empty'
    if (text.length > limits.textMaxChars)
      return `the message is longer than ${limits.textMaxChars} characters; put it into a file of the workspace`
    if (this.#waiting >= limits.steerMaxPending) return 'too many messages wait for the agent already'
    const messageId = `m-${randomBytes(10).toString('hex')}`
    const message = {
      messageId,
      text: text.toWellFormed(),
      ...(agentPath === undefined ? {} : { agentPath }),
    }
    const problem = await this.#note({ type: 'steer-request', ...message, by: lineOf(by) })
    if (problem !== undefined) return problem
    this.#waiting += 1
    return await this.#deliver(async (agent) => {
      const answer = await agent.steer(message)
      if (answer.ok) this.#sent.push(message)
      this.#waiting -= 1
      return answer
    })
  }

  /**
   * Ends one sub-agent at work and those below it; its parent continues. Resolves like {@link steer}.
   * @returns why this is not possible; undefined on success
   */
  async cancelAgent(agentPath: string, reason: string, by: string): Promise<string | undefined> {
    if (this.#isOver) return over
    const unknown = this.#findUnknown(agentPath)
    if (unknown !== undefined) return unknown
    if (reason.length > limits.textMaxChars)
      return `the reason is longer than ${limits.textMaxChars} characters`
    const words = reason.toWellFormed()
    const problem = await this.#note({
      type: 'agent-cancel-request',
      agentPath,
      reason: words,
      by: lineOf(by),
    })
    return problem ?? (await this.#deliver((agent) => agent.cancelAgent(agentPath, words)))
  }

  /** Why nobody at this path can be reached; undefined for a sub-agent at work. */
  #findUnknown(agentPath: string): string | undefined {
    const paths = this.#options.agentsAtWork()
    if (paths.includes(agentPath)) return undefined
    const named = paths.length === 0 ? 'none is' : `these are: ${paths.slice(0, namedMaxCount).join(', ')}`
    return `no sub-agent ${agentPath} is at work; ${named}`
  }

  /**
   * Pauses the agent before its next effect, or resumes it. Resolves like {@link steer}; a repeated call changes
   * nothing.
   * @returns why this is not possible; undefined on success
   */
  async setPaused(paused: boolean, by: string): Promise<string | undefined> {
    if (this.#isOver) return over
    if (this.#isPaused === paused) return undefined
    this.#setPaused(paused)
    const problem = await this.#note({ type: paused ? 'pause-request' : 'resume-request', by: lineOf(by) })
    if (problem !== undefined) return problem
    this.#holdOrNot()
    return await this.#deliver((agent) => agent.setTaskPaused(paused))
  }

  #setPaused(paused: boolean): void {
    this.#isPaused = paused
    if (paused) this.#resumed = Promise.withResolvers()
    else this.#resumed.resolve()
  }

  /** Pauses the run's deadline while an agent with a task is paused. */
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
      const agent = await this.#started.promise
      return agent === null ? over : await wordsOf(send(agent))
    })
    this.#last = sent
    return this.#agent?.isReachable === true ? await sent : undefined
  }
}

/** Maximum number of sub-agents that an error names. */
const namedMaxCount = 20

const over = 'the run has ended, or is about to'

async function wordsOf(sent: Promise<Result<unknown, RpcFailure>>): Promise<string | undefined> {
  const answer = await sent
  return answer.ok ? undefined : `the agent did not take it: ${answer.error.message}`
}

function lineOf(text: string): string {
  return text.toWellFormed().slice(0, limits.lineMaxChars)
}

export class HiddenApprovals {
  readonly #notify: (waiting: boolean) => Promise<void> | undefined
  #count = 0
  #last: Promise<void> = Promise.resolve()

  /** @param notify must not reject */
  constructor(notify: (waiting: boolean) => Promise<void> | undefined) {
    this.#notify = notify
  }

  /** One question more (+1) or fewer (-1). */
  hold(change: number): void {
    const was = this.#count > 0
    this.#count += change
    const waiting = this.#count > 0
    // One at a time, so that the agent receives the last state last.
    if (waiting !== was) this.#last = this.#last.then(() => this.#notify(waiting))
  }
}
