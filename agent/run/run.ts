/** What planner, executor and steps of one run share: task, model, tools, and access to the host. */

import { createHash, randomBytes } from 'node:crypto'
import type { Logger } from 'pino'
import type { Model, TurnHooks } from '#runtime/llm/model.ts'
import { untilAborted } from '#runtime/processes/until-aborted.ts'
import type { ModelError } from '#specs/node/model-protocols/model-error.ts'
import type { Result, RunReason } from '#specs/protocol/error.ts'
import type { AgentEvent, Delta } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import { sourceHeaders } from '#specs/protocol/model-request.ts'
import type { RpcFailure } from '#specs/protocol/peer.ts'
import type { StepModel } from '#specs/protocol/run-models.ts'
import type { RunOutcome, Task } from '#specs/protocol/task.ts'
import type { CodeFunction } from '#specs/protocol/workflow.ts'
import type { HostLink, HostRequests } from '../link/host-link.ts'
import { truncate } from '../text/truncate.ts'
import type { Registry } from '../tool-calls/registry.ts'
import type { Agents } from '../tool-calls/sub-agent-types.ts'
import type { AddSteps, Picture, RevisePlan, SkillCatalog, Tool } from '../tool-calls/tool.ts'
import type { RunBudget } from './budget.ts'
import type { AgentHooks } from './hooks.ts'
import { noLog, type RunLog } from './run-log.ts'
import type { Steering } from './steering.ts'
import type { SubAgents } from './sub-agents.ts'
import type { OutputStore } from './tool-outputs.ts'

/** Reports to the host during a run. */
export interface Report {
  /** Resolves when the event is sent or buffered; waits while too many are unacknowledged. */
  event(event: AgentEvent): Promise<void>
  /** May be lost. */
  delta(delta: Delta): void
  /** Number of the step's next turn. */
  turnOf(stepId: string): number
  /** Headers that tell the host what a model request of the step is for. */
  sourceHeaders(stepId: string): Readonly<Record<string, string>>
}

/** The link to the host as a run uses it. */
export type RunLink = Pick<
  HostLink,
  'emitEvent' | 'emitDelta' | 'requestApproval' | 'runHook' | 'callTool' | 'makeCheckpoint'
>

/** One run's access to its host. */
export class RunHost implements HostRequests {
  readonly #runId: string
  readonly #link: RunLink
  readonly #budget: RunBudget
  #open = true
  /** What of the run was done before; set before the run begins. */
  log: RunLog = noLog

  /** @param budget its clock stops while a person is asked */
  constructor(runId: string, link: RunLink, budget: RunBudget) {
    this.#runId = runId
    this.#link = link
    this.#budget = budget
  }

  readonly requestApproval: HostRequests['requestApproval'] = (request, signal) =>
    this.log.once(`approval ${request.approvalId}`, () => {
      const answer = this.#link.requestApproval({ runId: this.#runId, ...request }, signal)
      return this.#budget.whileWaiting(answerOf('approval', answer, signal))
    })

  readonly runHook: HostRequests['runHook'] = (request, signal) => {
    const { agentPath, stepId, subject } = request
    const callId = 'callId' in subject ? subject.callId : ''
    return this.log.once(`hook ${subject.point} ${agentPath} ${stepId} ${callId}`, () =>
      answerOf('hook', this.#link.runHook({ runId: this.#runId, ...request }, signal), signal),
    )
  }

  readonly callTool: HostRequests['callTool'] = (call, signal) =>
    answerOf('call', this.#link.callTool({ runId: this.#runId, ...call }, signal), signal)

  /** The report of the agent at that path. */
  readonly reportOf = (agentPath: string): Report => {
    /** The last reported turn, by step. */
    const turns = new Map<string, number>()
    const turnOf = (stepId: string) => (turns.get(stepId) ?? 0) + 1
    return {
      turnOf,
      event: (event) => {
        if (event.type === 'step-start' || event.type === 'step-retry') turns.delete(event.stepId)
        if (event.type === 'turn-end') turns.set(event.stepId, event.turn)
        const send = () => this.#link.emitEvent(this.#runId, agentPath, event)
        return this.#open ? this.log.emit(agentPath, event, send) : Promise.resolve()
      },
      delta: (delta) => {
        if (this.#open) this.#link.emitDelta(this.#runId, agentPath, delta)
      },
      sourceHeaders: (stepId) => ({
        [sourceHeaders.agentPath]: agentPath,
        [sourceHeaders.stepId]: stepId,
        [sourceHeaders.turn]: `${turnOf(stepId)}`,
      }),
    }
  }

  /** Reports a line to the person. */
  readonly note = (level: 'info' | 'warn', text: string): Promise<void> =>
    this.reportOf('root').event({ type: 'note', level, text: truncate(text, limits.textMaxChars) })

  /** Whether there is a checkpoint of all that was done and reported until now. */
  async makeCheckpoint(): Promise<boolean> {
    const checkpointId = `cp-${randomBytes(8).toString('hex')}`
    const answer = await this.#link.makeCheckpoint({ runId: this.#runId, checkpointId })
    return answer.ok && answer.value.made
  }

  /** Silences all reports: work that was abandoned reports nothing after the run's completion. */
  close(): void {
    this.#open = false
  }
}

/** Rejects once the signal is aborted, even if the host does not react, and when there will be no answer. */
async function answerOf<T>(
  what: string,
  asked: Promise<Result<T, RpcFailure>>,
  signal: AbortSignal,
): Promise<T> {
  const answer = await untilAborted(asked, signal)
  if (answer.ok) return answer.value
  throw new Error(`the ${what} has no answer: ${answer.error.message} (${answer.error.code})`)
}

/** A model that steps may have, with its client: what is learned of a model is kept by that. */
interface OpenStepModel extends StepModel {
  readonly model: Model
}

/** An image that the task names, or why the model cannot have it. */
export type TaskImage = Picture | { readonly name: string; readonly problem: string }

/** The functions that a step of a workflow may call, beside tools. */
export interface FunctionRules {
  readonly names: readonly string[]
  /** Whether those of one turn run at once; else one after the other. */
  readonly atOnce: boolean
}

export interface AgentRun {
  readonly task: Task
  /** Images of the task, in its order. Absent: none. */
  readonly images?: readonly TaskImage[]
  /** Path of the agent: `root`, or `root/NAME` of a sub-agent, `root/NAME/NAME` of one of its own. */
  readonly agentPath: string
  readonly model: Model
  /** Name of the model, if it is not the run's own. */
  readonly modelName?: string
  /** Models that steps and sub-agents may have instead, by name. Absent: none. */
  readonly stepModels?: ReadonlyMap<string, OpenStepModel>
  readonly registry: Registry
  /** Workspace listing for the prompts; the same text for the whole run. */
  readonly workspaceListing: string
  /** Text of the workspace's AGENTS.md for the prompts; absent: none. */
  readonly guidance?: string
  /** Skills that can be loaded; constant for the run. Absent: none. */
  readonly skills?: SkillCatalog
  readonly report: Report
  /** Waits until a person decides. */
  readonly requestApproval: HostRequests['requestApproval']
  /** The host's hooks, for the run and its sub-agents; absent: none. */
  readonly hooks?: AgentHooks
  readonly budget: RunBudget
  /** The agent's own messages, and the pause of the run. */
  readonly steering: Steering
  /** The run's sub-agents, as a person reaches them. */
  readonly subAgents: SubAgents
  /** Starts sub-agents; absent where none can be started. */
  readonly agents?: Agents
  /** For the executing step; absent in a sub-agent, and outside of a plan's execution. */
  readonly revisePlan?: RevisePlan
  /** For the executing step of a workflow. Absent: it adds no steps. */
  readonly addSteps?: AddSteps
  /** Makes a tool of a function that a step of a workflow adds. Absent: none may be added. */
  readonly makeFunction?: (added: CodeFunction) => Tool
  /** Names of such functions; sub-agents do not have them. Absent: none. */
  readonly addedFunctions?: readonly string[]
  /** Names and patterns of tools that require approval, for those that come later. Absent: none. */
  readonly askPatterns?: readonly string[]
  /** Aborted when the run is cancelled or its budget has tripped. */
  readonly signal: AbortSignal
  /** Aborted when the run is cancelled, or a budget above it has tripped: its own leaves it one turn to conclude. */
  readonly cancelled: AbortSignal
  /** Time for that turn. */
  readonly concludeMs: number
  readonly callIds: CallIds
  /** How the calls of a workflow's step run. Absent: as the model orders them, and their failures go back to it. */
  readonly functions?: FunctionRules
  /** Outputs of its calls, for `read_output`. */
  readonly outputs: OutputStore
  /** What was done before, when the run continues from a checkpoint. */
  readonly log: RunLog
  readonly logger: Logger
}

/** Reports the model's output for a turn of a step (`plan` while planning): pieces as deltas, retries as events. */
export function listenTo(stepId: string, run: AgentRun, signal: AbortSignal): TurnHooks {
  const { report } = run
  let turn = 0
  const said = new Map<string, number>()
  const tell = (stream: string, text: string, deltaOf: (piece: TurnPiece) => Delta): void => {
    // One listener can hear several turns.
    const now = report.turnOf(stepId)
    if (now !== turn) said.clear()
    turn = now
    for (const piece of sliceText(text)) {
      const offset = said.get(stream) ?? 0
      said.set(stream, offset + piece.length)
      report.delta(deltaOf({ stepId, turn, offset, text: piece }))
    }
  }
  const tools = new Map<number, string>()
  let index = 0
  return {
    signal,
    get headers() {
      return report.sourceHeaders(stepId)
    },
    onText: (text) => tell('text', text, (piece) => ({ type: 'text-delta', ...piece })),
    onReasoning: (text) => tell('reasoning', text, (piece) => ({ type: 'reasoning-delta', ...piece })),
    onCall: ({ index: given, name, argumentsText }) => {
      index = Math.max(0, given ?? index)
      if (name !== null && name !== '') tools.set(index, truncate(name, limits.lineMaxChars))
      const call = { index, tool: tools.get(index) ?? '' }
      tell(`call ${index}`, argumentsText, (piece) => ({ type: 'arguments-delta', ...piece, ...call }))
    },
    onRetry: (error, delayMs) => {
      if (said.size > 0) report.delta({ type: 'turn-reset', stepId, turn })
      said.clear()
      tools.clear()
      noteRetry(stepId, run, error, delayMs)
    },
  }
}

type TurnPiece = Pick<Extract<Delta, { type: 'text-delta' }>, 'stepId' | 'turn' | 'offset' | 'text'>

/** A retry delay may be long, so people see why the run waits. */
function noteRetry(stepId: string, run: AgentRun, error: ModelError, delayMs: number): void {
  const { code, status, message } = error
  run.logger.warn({ stepId, code, status, delayMs }, `model: ${message}`)
  run.report
    .event({ type: 'turn-retry', stepId, code, message: truncate(message, limits.textMaxChars), delayMs })
    .catch((cause: unknown) => run.logger.error({ err: cause }, 'a retry was not reported'))
}

/** How a run, or the execution of its plan, ended. */
export interface RunEnding {
  readonly outcome: RunOutcome
  readonly reason: RunReason
  /** For people. */
  readonly message: string
  /** The agent's answer; empty when it has none. */
  readonly summary: string
}

/**
 * The ids of a run's tool calls: the model's own when valid and unused, else drawn ones. A call has the same id again
 * when the run is continued, so that its result is found: so no id depends on which of several steps is quicker.
 */
export class CallIds {
  readonly #used: Set<string>
  readonly #seed: string | undefined
  readonly #draw: () => string
  readonly #isDrawn: boolean
  readonly #steps = new Map<string, CallIds>()
  /** How often programs made a call, by its first id. */
  readonly #repeated = new Map<string, number>()

  /** @param seed of drawn ids; absent: they are random */
  constructor(seed?: string, isDrawn = false, used = new Set<string>()) {
    this.#seed = seed
    this.#draw = seed === undefined ? drawCallId : repeatableIds(seed)
    this.#isDrawn = isDrawn
    this.#used = used
  }

  /**
   * New ids for another agent of the run. All are drawn: which agent is the first to use
   * an id of the model is not the same when the run is continued.
   */
  of(seed: string): CallIds {
    return new CallIds(seed, true, this.#used)
  }

  /**
   * Ids for the calls of a step. Only the step that starts first has ids of the model: which of several steps is the
   * first to use one is not the same when the run is continued.
   */
  ofStep(stepId: string): CallIds {
    const known = this.#steps.get(stepId)
    if (known !== undefined) return known
    const seed = this.#seed === undefined ? undefined : `${this.#seed} step ${stepId}`
    const ids = new CallIds(seed, this.#isDrawn || this.#steps.size > 0, this.#used)
    this.#steps.set(stepId, ids)
    return ids
  }

  /**
   * The id of a call that the program of a call makes. It follows from what is called, not from when: a program that
   * runs again gets the same ids, in whatever order its calls come.
   */
  ofProgram(parentCallId: string, what: string): string {
    const digest = toCallId(createHash('sha256').update(what).digest())
    const first = `${parentCallId}.${digest}`
    let count = (this.#repeated.get(first) ?? 0) + 1
    let id = count === 1 ? first : `${first}-${count}`
    while (this.#used.has(id)) id = `${first}-${++count}`
    this.#repeated.set(first, count)
    this.#used.add(id)
    return id
  }

  claim(wanted: string): string {
    const isTaken = !this.#isDrawn && /^[A-Za-z0-9._:-]{1,40}$/.test(wanted)
    let id = isTaken ? wanted : this.#draw()
    while (this.#used.has(id)) id = this.#draw()
    this.#used.add(id)
    return id
  }
}

/** Draws nine letters and digits, which every model family accepts: the same again when the run is continued. */
function repeatableIds(seed: string): () => string {
  let count = 0
  return () => {
    const digest = createHash('sha256').update(`${seed} ${++count}`).digest()
    return toCallId(digest)
  }
}

function drawCallId(): string {
  return toCallId(randomBytes(9))
}

function toCallId(bytes: Uint8Array): string {
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789'
  return Array.from(bytes.subarray(0, 9), (byte) => alphabet[byte % alphabet.length]).join('')
}

/** Splits a long text into pieces that fit a delta. */
export function* sliceText(text: string): Generator<string> {
  const size = limits.textMaxChars / 2
  for (let at = 0; at < text.length; ) {
    const last = text.charCodeAt(at + size - 1)
    // Never split a surrogate pair.
    const end = at + size - (last >= 0xd800 && last <= 0xdbff ? 1 : 0)
    yield text.slice(at, end).toWellFormed()
    at = end
  }
}
