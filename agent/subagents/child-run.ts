/**
 * The run of a sub-agent: its parent's, with its own path, tools, budget and context; and its conversation from start
 * to end.
 */

import type { ChatMessage } from '#runtime/llm/messages.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Plan, Step } from '#specs/protocol/plan.ts'
import { stepOpening } from '../context/opening.ts'
import type { RunBudget } from '../run/budget.ts'
import { atEffort } from '../run/effort.ts'
import { aroundStep } from '../run/hooks.ts'
import type { AgentRun, Report } from '../run/run.ts'
import { noLog } from '../run/run-log.ts'
import type { Steering } from '../run/steering.ts'
import { atModel } from '../run/step-model.ts'
import { OutputStore } from '../run/tool-outputs.ts'
import { runStep, type StepResult } from '../step/step.ts'
import { describeOutput, settleOutput } from '../step/step-output.ts'
import { truncate } from '../text/truncate.ts'
import type { Registry } from '../tool-calls/registry.ts'
import type { AgentRequest } from '../tool-calls/sub-agent-types.ts'

/** Step id in a sub-agent's events. */
const agentStepId = 'agent'

/** Text after the rules of every agent. */
const rules = `
You are a sub-agent: another agent has given you a part of its work, and this step is all of it. You have the workspace as it was when you began; others may work elsewhere at the same time, and you do not see what they do. When you end, what you changed is brought into the workspace of the agent that asked, which gets your answer and nothing else of what you did and saw. Decide what you can, and say in your answer what you decided; what only the user can decide may be asked with ask_user, if you have it: nobody else answers questions.`

const childTask =
  'Carry out the one step below, for the agent that asked. The rest of the work is with others.'

interface ChildParts {
  readonly agentPath: string
  readonly registry: Registry
  readonly budget: RunBudget
  readonly report: Report
  /** Its own messages. */
  readonly steering: Steering
  readonly workspaceListing: string
  readonly signal: AbortSignal
  /** Aborted when the parent's has been; not by its own budget. */
  readonly cancelled: AbortSignal
}

/** Creates the child's run, without sub-agents of its own. */
export function childRun(parent: AgentRun, request: AgentRequest, parts: ChildParts): AgentRun {
  // The brief names the images that it is about; the sub-agent reads them itself.
  const { agents: _agents, revisePlan: _revisePlan, addSteps: _addSteps, images: _images, ...shared } = parent
  const { outputSchema: _schema, images: __images, ...task } = parent.task
  const child = {
    ...shared,
    ...parts,
    task: {
      ...task,
      prompt: childTask,
      limits: {
        ...task.limits,
        ...parts.budget.limits,
        maxTurnsPerStep: maxTurnsOf(request, parent),
      },
    },
    callIds: parent.callIds.of(`${task.idSeed ?? task.runId} ${parts.agentPath}`),
    outputs: new OutputStore(),
    // The call that started it is in the parent's log as a whole.
    log: noLog,
    logger: parent.logger.child({ agentPath: parts.agentPath }),
  }
  return atEffort(atModel(child, request.model), request.effort)
}

/** Turns of the sub-agent: at most those of a step of its parent. */
export function maxTurnsOf({ limits }: AgentRequest, parent: Pick<AgentRun, 'task'>): number {
  const { maxTurnsPerStep } = parent.task.limits
  return Math.min(limits?.maxTurns ?? maxTurnsPerStep, maxTurnsPerStep)
}

/** Runs the child's conversation to its end. */
export async function converse(
  request: AgentRequest,
  run: AgentRun,
  signal: AbortSignal,
): Promise<StepResult> {
  const { brief, output } = request
  const step: Step = {
    id: agentStepId,
    title: titleOf(brief),
    instructions: output === undefined ? brief : `${brief}\n\n${describeOutput(output)}`,
    needs: [],
    writes: ['*'],
    onFailure: 'abort',
  }
  const plan: Plan = { goal: step.title, steps: [step] }
  const opening = (): readonly ChatMessage[] => {
    const [system, ...rest] = stepOpening(run, { plan, step, results: [] })
    return system === undefined ? rest : [{ role: 'system', content: `${system.content}\n${rules}` }, ...rest]
  }
  return await aroundStep(step, run, signal, async () => {
    const result = await runStep(step, opening, run, signal)
    return output === undefined ? result : await settleOutput(result, output, step.id, run, signal)
  })
}

/** The model's last text, for a child that did not finish. */
export function lastWords(history: readonly ChatMessage[]): string {
  const said = history.findLast(({ role, content }) => role === 'assistant' && content.trim() !== '')
  return said?.content.trim() ?? ''
}

function titleOf(brief: string): string {
  const line = brief.trim().split('\n', 1)[0]?.trim() ?? ''
  return truncate(line === '' ? 'Work of a sub-agent' : line, Math.min(120, limits.lineMaxChars))
}
