/** Takes a run back to its last checkpoint, so that another agent can continue it. Repeats nothing that left the VM. */
import { CaissonError, hasCode } from '#specs/errors.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Task } from '#specs/protocol/task.ts'
import type { ApprovalQueue } from '../approvals/queue.ts'
import type { RunHooks } from '../hooks/run-hooks.ts'
import type { RunRecord } from '../journal/run-record.ts'
import type { EarlierAnswers } from '../recording/replay.ts'
import type { HostCallResults } from '../tools/calls.ts'
import { VmError } from '../vm/vm-error.ts'
import { DEFAULT_RECOVERIES } from '../vm/vm-options.ts'
import type { AgentControl } from './guest/agent-control.ts'
import type { AgentEventValidator } from './guest/agent-event-validator.ts'
import { Past, readCalls } from './past.ts'
import { type PlannedRun, taskOf } from './resolved-run.ts'
import type { RunClock } from './run-clock.ts'

interface RecoveryParts {
  readonly record: RunRecord
  readonly claims: AgentEventValidator
  readonly approvals: ApprovalQueue
  readonly control: AgentControl
  readonly clock: RunClock
  readonly hooks: RunHooks
  /** Whether a plan and each revision need approval. */
  readonly approvesPlan: boolean
}

/** What an agent continues a run with. */
interface PresentImage {
  readonly agentDigest: string
  /** Absent: the VM boots another disk than the image. */
  readonly imageKey?: string
}

export class Recovery {
  /** Results of host tools, which outlive the agents that asked for them. */
  readonly hostCallResults: HostCallResults = new Map()
  /** Who cancelled the run in the process before, which did not end it. */
  cancelledBy: string | undefined
  /** What the person said behind the checkpoint: the next agent has it from its first moment. */
  #messages: Past['newMessages'] = []
  /** Sub-agents that the person cancelled behind the checkpoint. */
  #cancelledAgents: { agentPath: string; reason: string }[] = []
  readonly #plan: PlannedRun
  readonly #parts: RecoveryParts
  /** Agents and VMs that this process lost. */
  #losses = 0

  constructor(plan: PlannedRun, parts: RecoveryParts) {
    this.#plan = plan
    this.#parts = parts
  }

  /** How often a lost agent is replaced. */
  get maxCount(): number {
    return this.#plan.vm.recoveries ?? DEFAULT_RECOVERIES
  }

  /** Whether another agent can continue after this failure. */
  isPossible(error: unknown): boolean {
    const isLost = hasCode(error, 'agent_lost', 'vm_lost') || isKilledStart(error)
    return isLost && this.#losses < this.maxCount
  }

  /**
   * Back to the last checkpoint.
   * @param after `loss`: of an agent or a VM; `sleep`: the run slept; `process`: another process had it until now
   * @param message why the agent before cannot continue
   * @param present agent and image that will continue after another process
   * @returns what the next agent is given again
   */
  async recover(
    message: string,
    after: 'loss' | 'sleep' | 'process',
    present?: PresentImage,
  ): Promise<EarlierAnswers> {
    const { record, claims, approvals, control, clock } = this.#parts
    const { epoch } = record.state
    const checkpoint =
      this.#plan.resumed?.fromBeginning === true && after === 'process' ? null : record.state.checkpoint
    const isOther = after === 'process'
    if (after === 'loss') this.#losses += 1
    const checkpointId = checkpoint?.checkpointId ?? null
    const past = new Past(checkpointId, this.#plan.resumed?.importedLines)
    await record.visitPast((line) => past.next(line), isOther)
    if (checkpoint !== null && present !== undefined) requireSame(present, past.madeWith)
    if (isOther) this.cancelledBy = past.cancelledBy
    if (isOther) clock.add(checkpoint?.elapsedMs ?? 0)
    const why = past.origin ?? (past.isSleeping ? 'the run slept' : (past.interruption ?? message))
    await record.host({
      type: 'run-resume',
      epoch: epoch + 1,
      checkpointId,
      message: why.slice(0, limits.textMaxChars),
      ...(past.reached.length === 0 ? {} : { reached: past.reached }),
    })
    if (isOther) await this.#revokeImported(past)
    claims.restore(record.state)
    const isAnew = this.#plan.resumed?.fromBeginning === true
    approvals.restore(record.paths.runId, {
      decided: past.decided,
      ...(isOther ? { runAnswers: past.runAnswers, open: isAnew ? [] : past.open } : {}),
    })
    if (isOther) control.restore(past.messages)
    this.#messages = past.newMessages.slice(-limits.steerMaxPending)
    this.#cancelledAgents = [...past.cancelledAgents].map(([agentPath, reason]) => ({ agentPath, reason }))
    const recording = await record.readExchanges(this.#plan.provider, checkpoint?.exchanges ?? 0)
    for (const [call, result] of readCalls(recording)) this.hostCallResults.set(call, result)
    past.addUnknownCalls(this.hostCallResults)
    return recording
  }

  /** What was answered elsewhere does not apply here, and is not listed. */
  async #revokeImported({ runAnswers }: Past): Promise<void> {
    if ((this.#plan.resumed?.importedLines ?? 0) === 0) return
    const { record } = this.#parts
    const own = new Set(runAnswers.map(({ request }) => request.approvalId))
    const others = Object.keys(record.state.runAnswers).filter((id) => !own.has(id))
    for (const approvalId of others) await record.host({ type: 'approval-revoke', approvalId, by: 'import' })
  }

  /** The task, for an agent that begins it or continues from a checkpoint. */
  taskNow(): Task {
    const { record, clock } = this.#parts
    const task = this.#taskToDo()
    const maxWallMs = Math.max(1, task.limits.maxWallMs - clock.elapsedMs)
    return {
      ...task,
      limits: { ...task.limits, maxWallMs },
      ...(this.#messages.length === 0 ? {} : { messages: this.#messages }),
      ...(this.#cancelledAgents.length === 0 ? {} : { cancelledAgents: this.#cancelledAgents.slice(-256) }),
      ...(record.state.checkpoint === null ? {} : { resume: true as const }),
    }
  }

  /** Of a run from another process: as it was then, with the hooks of now, which the agent must ask. */
  #taskToDo(): Task {
    if (this.#plan.resumed === undefined) return taskOf(this.#plan, this.#parts.approvesPlan)
    const { hooks: _, ...task } = this.#plan.resumed.task
    const hooks = this.#parts.hooks.ofAgent
    return hooks.length === 0 ? task : { ...task, hooks: [...hooks] }
  }
}

/**
 * The log of an agent is of use to the same agent alone, and its disk to the programs of the same image.
 * @throws {CaissonError} `version_mismatch` naming what is another
 */
function requireSame(present: PresentImage, past: Past['madeWith']): void {
  const others = [
    { name: 'agent', made: past.agentDigest, now: present.agentDigest },
    { name: 'image', made: past.imageKey, now: present.imageKey },
  ].filter(({ made, now }) => made !== undefined && now !== undefined && made !== now)
  if (others.length === 0) return
  const list = (of: 'made' | 'now'): string =>
    others.map((other) => `the ${other.name} ${other[of]?.slice(0, 12)}`).join(' and ')
  throw new CaissonError(
    'version_mismatch',
    `the run was started with ${list('made')}, and this version of Caisson has ${list('now')}`,
    {
      remedy:
        'continue it with the version that started it, or start it again from its beginning: caisson runs resume --restart',
    },
  )
}

/** A QEMU that somebody killed before its agent answered says nothing against another one. */
function isKilledStart(error: unknown): boolean {
  return error instanceof VmError && error.signal === 'SIGKILL'
}
