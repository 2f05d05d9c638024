/**
 * The host's tasks, one at a time: accepts a task, serves each run at most once, obeys the host's requests about it,
 * and completes it exactly once, also after a cancel and after a fault in planner or executor.
 */
import type { Logger } from 'pino'
import { AwakeTimer } from '#specs/node/awake-timer.ts'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { taskCheckpoint } from '#specs/protocol/methods.ts'
import type { HandlerFailure, ResultOf } from '#specs/protocol/peer.ts'
import type { Task } from '#specs/protocol/task.ts'
import type { HostLink } from './link/host-link.ts'
import { interruption } from './plan/ending.ts'
import { RunBudget } from './run/budget.ts'
import { followPauses } from './run/pause.ts'
import { type RunEnding, RunHost, type RunLink } from './run/run.ts'
import { noLog, openRunLog, type RunLog, type RunLogOptions } from './run/run-log.ts'
import { Steering, type SteerMessage } from './run/steering.ts'
import { isSubAgent, SubAgents } from './run/sub-agents.ts'
import { type RunParts, runTask, type TaskContext } from './run-task.ts'
import { truncate, truncateJson } from './text/truncate.ts'

export interface TaskServerParts extends RunParts {
  readonly host: RunLink & Pick<HostLink, 'beginRun' | 'complete'>
  readonly logger: Logger
  /** How long planner and executor may take to end after a cancel before they are abandoned. Default 5 s. */
  readonly cancelGraceMs?: number
  /** How long the turn may take that concludes the work after a limit. Default 8 s, less than the host waits. */
  readonly concludeMs?: number
  /** Where the run's log is kept, on the scratch disk. Absent: no run can be continued by another agent. */
  readonly log?: Pick<RunLogOptions, 'file' | 'minIntervalMs'>
}

type Answer = Result<Record<string, never>, HandlerFailure>
type CheckpointAnswer = Result<ResultOf<typeof taskCheckpoint>, HandlerFailure>
const done: Answer = { ok: true, value: {} }

interface Current {
  readonly runId: string
  readonly controller: AbortController
  /** Without the time in which this VM stood still. */
  readonly clock: AwakeTimer
  readonly budget: RunBudget
  readonly steering: Steering
  readonly subAgents: SubAgents
  /** Absent until the work begins, and once it has ended. */
  log?: RunLog
  /** Resolves when the run is completed. */
  served: Promise<void>
}

/** Number of remembered finished runs, so that a task resubmitted after a lost session does not run again. */
const rememberedRuns = 64

export class TaskServer {
  readonly #parts: TaskServerParts
  #current: Current | null = null
  readonly #finished: string[] = []

  constructor(parts: TaskServerParts) {
    this.#parts = parts
  }

  /** Begins to serve the task; changes nothing for a run that is active or over. Failure: `busy` with another one. */
  submit(task: Task): Answer {
    const { runId } = task
    if (this.#current?.runId === runId || this.#finished.includes(runId)) return done
    if (this.#current !== null) return failure('busy', `the agent is busy with ${this.#current.runId}`)
    const clock = new AwakeTimer(Number.POSITIVE_INFINITY, () => undefined)
    const steering = new Steering()
    const current: Current = {
      runId,
      controller: new AbortController(),
      clock,
      budget: new RunBudget(task.limits, () => clock.passedMs, task.price),
      steering,
      subAgents: new SubAgents(steering, task),
      served: Promise.resolve(),
    }
    for (const message of task.messages ?? [])
      if (!isSubAgent(message.agentPath)) current.steering.push(message)
    this.#current = current
    this.#parts.host.beginRun(runId)
    current.served = this.#serve(task, current)
    return done
  }

  cancel(runId: string, reason: string): Answer {
    return this.#tell(runId, ({ controller }) => controller.abort(reason))
  }

  /** Stops the run's clock while the host asks a person on the agent's behalf. */
  hold(runId: string, waiting: boolean): Answer {
    return this.#tell(runId, ({ budget }) => budget.hold(waiting, 'person'))
  }

  /** Stops the clock while the host is silent, as when its process is stopped: nothing that needs it can continue. */
  setHostQuiet(quiet: boolean): void {
    this.#current?.budget.hold(quiet, 'host')
  }

  pause(runId: string, paused: boolean): Answer {
    return this.#tell(runId, ({ steering }) => steering.setPaused(paused))
  }

  /** Makes a checkpoint of this moment. Failure: `notFound` for a run that is over, or whose work has not begun. */
  async makeCheckpoint(runId: string): Promise<CheckpointAnswer> {
    const log = this.#current?.runId === runId ? this.#current.log : undefined
    if (log === undefined) return failure('notFound', `run ${runId} is not at work`)
    return { ok: true, value: { outcome: await log.makeNow() } }
  }

  /** Passes on a message from a person. Failures: `busy` while too many are unseen, `notFound` for a run that is over. */
  steer(runId: string, message: SteerMessage): Answer {
    if (this.#current?.runId !== runId)
      return this.#finished.includes(runId) ? failure('notFound', `run ${runId} is over`) : unknown(runId)
    const { agentPath, ...words } = message
    if (isSubAgent(agentPath)) return this.#current.subAgents.steer(agentPath, words)
    const taken = this.#current.steering.push(words)
    if (taken === 'over') return failure('notFound', `run ${runId} is over`)
    const text = 'too many messages wait to be seen by the agent; send the next one when it has answered'
    return taken === 'busy' ? failure('busy', text) : done
  }

  /** Ends one sub-agent. Failure: `notFound` for one that is not at work. */
  cancelAgent(runId: string, agentPath: string, reason: string): Answer {
    if (this.#current?.runId !== runId)
      return this.#finished.includes(runId) ? failure('notFound', `run ${runId} is over`) : unknown(runId)
    return this.#current.subAgents.cancel(agentPath, reason)
  }

  /** Cancels the current run; resolves when it has ended. */
  async close(): Promise<void> {
    this.#current?.controller.abort('the agent is ending')
    await this.#current?.served
  }

  /** A finished run stays as it is. */
  #tell(runId: string, tell: (current: Current) => void): Answer {
    if (this.#current?.runId !== runId) return this.#finished.includes(runId) ? done : unknown(runId)
    tell(this.#current)
    return done
  }

  /** Without the log of an earlier agent the task starts from its beginning. */
  #openLog({ resume }: Task, host: RunHost, logger: Logger): RunLog {
    const { log } = this.#parts
    if (log === undefined) return noLog
    const makeCheckpoint = () => host.makeCheckpoint()
    try {
      return openRunLog({ ...log, resume: resume === true, makeCheckpoint })
    } catch (error) {
      logger.error({ err: error }, 'the log of the run cannot be used')
      return noLog
    }
  }

  async #serve(task: Task, current: Current): Promise<void> {
    const { runId, controller, clock, budget, steering, subAgents } = current
    const parts = this.#parts
    const logger = parts.logger.child({ runId })
    const host = new RunHost(runId, parts.host, budget)
    host.log = this.#openLog(task, host, logger)
    current.log = host.log
    const report = host.reportOf('root')
    const pauses = followPauses(steering, budget, report, logger)
    const signal = AbortSignal.any([controller.signal, budget.signal])
    const { concludeMs = 8_000, cancelGraceMs = 5_000 } = parts
    const cancelled = controller.signal
    const context: TaskContext = {
      ...{ task, steering, subAgents, budget, host, report, signal, cancelled, concludeMs, logger },
    }
    budget.restore(host.log.agents.length, host.log.agentUsage)
    logger.info({ model: task.model }, 'task received')
    const ending = await settle(runTask(context, parts), context, cancelGraceMs)
    delete current.log
    budget.stop()
    clock.cancel()
    await pauses.end()
    // Messages that arrived after the agent's last answer: none is lost silently.
    for (const { text } of [...steering.close(), ...subAgents.close()])
      await host.note('warn', `the run ended before the agent saw this message: ${text}`)
    host.close()
    logger.info({ outcome: ending.outcome, reason: ending.reason, usage: budget.usage }, 'task ended')
    try {
      const delivered = await parts.host.complete({
        runId,
        outcome: ending.outcome,
        reason: ending.reason,
        message: truncate(ending.message, limits.textMaxChars),
        // A completion that does not fit a frame would never arrive.
        summary: truncateJson(ending.summary, limits.documentMaxChars, limits.frameMaxBytes / 2),
        usage: budget.usage,
      })
      if (!delivered.ok) throw new Error(`${delivered.error.message} (${delivered.error.code})`)
    } catch (error) {
      logger.error({ err: error }, 'the completion was not delivered')
    }
    this.#current = null
    this.#finished.push(runId)
    if (this.#finished.length > rememberedRuns) this.#finished.shift()
  }
}

/** The work's ending. Replaced when the work throws, or does not end within the grace period after its signal. */
async function settle(
  work: Promise<RunEnding>,
  run: Pick<TaskContext, 'signal' | 'cancelled' | 'budget' | 'concludeMs' | 'logger'>,
  graceMs: number,
): Promise<RunEnding> {
  let timer: NodeJS.Timeout | undefined
  const leftBehind = Promise.withResolvers<RunEnding>()
  const onAbort = (): void => {
    const concludeMs = run.cancelled.aborted ? 0 : run.concludeMs
    timer = setTimeout(() => {
      run.logger.error('planner or executor did not end in time')
      leftBehind.resolve({ ...interruption(run, 'work that did not stop was abandoned'), summary: '' })
    }, graceMs + concludeMs)
  }
  if (run.signal.aborted) onAbort()
  else run.signal.addEventListener('abort', onAbort, { once: true })
  const guarded = work.catch((error: unknown): RunEnding => {
    run.logger.error({ err: error }, 'planner or executor threw')
    if (run.signal.aborted) return { ...interruption(run, 'the work failed'), summary: '' }
    const message = 'internal error of the agent; its log has the details'
    return { outcome: 'failed', reason: 'internal', message, summary: '' }
  })
  const ending = await Promise.race([guarded, leftBehind.promise])
  run.signal.removeEventListener('abort', onAbort)
  clearTimeout(timer)
  return ending
}

function unknown(runId: string): Answer {
  return failure('notFound', `no run ${runId} was submitted`)
}

function failure(code: HandlerFailure['code'], message: string): { ok: false; error: HandlerFailure } {
  return { ok: false, error: { code, message } }
}
