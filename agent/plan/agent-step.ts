/** Runs a plan step in a sub-agent: builds its request and turns its result into the step's result. */

import { block } from '#specs/node/prompt-block.ts'
import type { ToolError } from '#specs/protocol/error.ts'
import type { Step } from '#specs/protocol/plan.ts'
import type { AgentRun } from '../run/run.ts'
import type { StepResult } from '../step/step.ts'
import { readOutput } from '../step/step-output.ts'
import type { Registry } from '../tool-calls/registry.ts'
import type { AgentResult } from '../tool-calls/sub-agent-types.ts'
import { nameInLine } from '../workspace/listing.ts'

/** Maximum number of conflicts named in the step's answer; the event has all of them. */
const conflictsMaxCount = 20

/** Result of a step that a sub-agent executed. */
export interface AgentStepResult extends StepResult {
  /** Answer of a step that has an `output`. */
  readonly value?: unknown
  /** Text appended to an answer of a given form, for those who use the result. */
  readonly aside?: string
  /** Whether a retry is certain to fail in the same way. */
  readonly isFinal?: boolean
}

/** Whether a sub-agent executes the step; without sub-agents it is an ordinary step. */
export function isForAgent(step: Step, run: AgentRun): boolean {
  return step.kind === 'agent' && run.agents !== undefined && run.task.limits.maxAgents > 0
}

/** The run for a sub-agent step that executes without a sub-agent: with the same restrictions. */
export function narrowRun(step: Step, run: AgentRun): AgentRun {
  if (step.kind !== 'agent') return run
  const { limits } = run.task
  const maxTurnsPerStep = Math.min(step.limits?.maxTurns ?? limits.maxTurnsPerStep, limits.maxTurnsPerStep)
  return {
    ...run,
    task: { ...run.task, limits: { ...limits, maxTurnsPerStep } },
    registry: step.tools === undefined ? run.registry : selectKnown(step.tools, run),
  }
}

/** Never more than the named tools, also when a name no longer exists. */
function selectKnown(tools: readonly string[], { registry }: AgentRun): Registry {
  const selected = registry.select(tools.filter((name) => registry.names.includes(name)))
  if (!selected.ok) throw new TypeError(selected.error.message)
  return selected.value
}

/**
 * Executes the step in a sub-agent.
 * @param results of the steps that it waited for; a sub-agent sees nothing else of the plan
 */
export async function runAgentStep(
  step: Step,
  results: readonly { stepId: string; text: string }[],
  run: AgentRun,
  signal: AbortSignal,
): Promise<AgentStepResult> {
  if (run.agents === undefined) throw new TypeError('the run has no sub-agents')
  const { id, title, instructions, tools, limits, output, effort, model, isolation, hosts, approvals } = step
  const known = results.map(({ stepId, text }) => block('result', text, ` step="${stepId}"`))
  const brief = [title, instructions, ...(known.length > 0 ? [`What is known:\n${known.join('\n')}`] : [])]
  const result = await run.agents.spawn(
    {
      name: id,
      brief: brief.join('\n\n'),
      ...(tools === undefined ? {} : { tools }),
      ...(limits === undefined ? {} : { limits }),
      ...(output === undefined ? {} : { output }),
      ...(effort === undefined ? {} : { effort }),
      ...(model === undefined ? {} : { model }),
      ...(isolation === undefined ? {} : { isolation }),
      ...(hosts === undefined ? {} : { hosts }),
      ...(approvals === undefined ? {} : { approvals }),
    },
    id,
    signal,
  )
  const plain: StepResult = { state: result.state, reason: result.reason, text: result.text, history: [] }
  if (result.refused !== undefined) return neverBegan(plain, result.refused)
  // The person cancelled this one: like a denial, it ends no step that does not need it, and is not tried again.
  if (result.state === 'cancelled' && !signal.aborted && !run.signal.aborted)
    return { ...plain, state: 'failed', reason: 'denied', isFinal: true }
  if (result.state !== 'completed') return plain
  const aside = describeConflicts(result)
  if (output === undefined) return { ...plain, text: `${result.text}${aside}` }
  const read = await readOutput(result.text, output)
  if (read.ok) return { ...plain, value: read.value, ...(aside === '' ? {} : { aside }) }
  return {
    ...plain,
    state: 'failed',
    reason: 'step_failed',
    text: `the sub-agent's answer does not fit: ${read.error}`,
  }
}

function neverBegan(plain: StepResult, { code, message }: ToolError): AgentStepResult {
  const text = `no sub-agent started this step: ${message}`
  if (code !== 'limit_reached') return { ...plain, text }
  return { ...plain, text: `${text}. Plan what is left as steps without the kind "agent"`, isFinal: true }
}

function describeConflicts({ agentPath, conflicts }: AgentResult): string {
  if (conflicts.length === 0) return ''
  const paths = conflicts.slice(0, conflictsMaxCount).map(({ path }) => nameInLine(path))
  const more = conflicts.length > paths.length ? `, and ${conflicts.length - paths.length} more` : ''
  return `\n\n[Caisson] Not merged from ${agentPath}, because they were also changed here: ${paths.join(', ')}${more}`
}
