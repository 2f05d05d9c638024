/** The plan as a graph of steps with their states, and the sub-agents below it. */
import { useMemo, useState } from 'preact/hooks'
import { waitsOf } from '#specs/protocol/plan.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import type { WorkflowOutline } from '#specs/protocol/workflow.ts'
import { ActionButton, Status } from '../parts/parts.tsx'
import { placeSteps } from '../parts/plan-lanes.ts'
import { StepGraph } from '../parts/step-graph.tsx'
import { visible, visibleLine } from '../parts/text.ts'
import { describeStep, titlesOf } from './workflow-words.ts'

export interface PlanViewProps {
  readonly state: RunState
  /** Of the workflow that the run carries out. Absent: none. */
  readonly outline?: WorkflowOutline | undefined
  /** Numbers of the entries that began, by step with `each`. */
  readonly rounds: ReadonlyMap<string, number>
  /** Step or sub-agent whose entries the log shows alone. */
  readonly focus: Focus | undefined
  readonly onFocus: (focus: Focus | undefined) => void
  /** Cancels a sub-agent; absent where the run is over. */
  readonly onCancelAgent?: (agentPath: string) => Promise<unknown>
}

export type Focus = { readonly stepId: string } | { readonly agentPath: string }

export function PlanView({ state, outline, rounds, focus, onFocus, onCancelAgent }: PlanViewProps) {
  const { plan, steps } = state
  const placed = useMemo(
    () =>
      plan === null
        ? undefined
        : placeSteps(plan.steps.map((step) => ({ id: step.id, needs: waitsOf(step) }))),
    [plan],
  )
  const agents = Object.entries(state.agents)
  // On a phone the log has the first place.
  const [isOpen, setOpen] = useState(() => matchMedia('(min-width: 901px)').matches)
  const focusedStep = focus !== undefined && 'stepId' in focus ? focus.stepId : undefined
  const focusedAgent = focus !== undefined && 'agentPath' in focus ? focus.agentPath : undefined
  return (
    <section class="plan card" aria-labelledby="plan-head">
      <header>
        <h2 id="plan-head">
          <button type="button" class="plain" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
            {outline === undefined ? 'Plan' : 'Steps'}
          </button>
        </h2>
        {state.revision > 1 && <span class="hint">revision {state.revision}</span>}
        {plan !== null && (
          <span class="hint">
            {numberOf(plan.steps, steps, 'completed')} of {plan.steps.length} done
            {outline !== undefined &&
              numberOf(plan.steps, steps, 'skipped') > 0 &&
              `, ${numberOf(plan.steps, steps, 'skipped')} not taken`}
          </span>
        )}
      </header>
      {isOpen && plan === null && (
        <p class="hint pad">{state.end === null ? 'There is no plan yet.' : 'The run had no plan.'}</p>
      )}
      {isOpen && plan !== null && placed !== undefined && (
        <>
          {/* The heading of a workflow's run says it. */}
          {outline === undefined && <p class="goal">{visible(plan.goal)}</p>}
          <StepGraph
            placed={placed}
            stateOf={(id) => stateOf(steps, id)}
            row={({ id, needs }) => {
              const step = plan.steps.find((other) => other.id === id)
              const status = stateOf(steps, id)
              const isFocused = focusedStep === id
              const title = visibleLine(step?.title ?? id)
              const words = outline && describeStep(id, { plan, outline, steps, rounds })
              return (
                <button
                  type="button"
                  class={`step plain step-${status}`}
                  aria-pressed={isFocused}
                  title={[title, ...(words?.whole ?? [])].join('\n')}
                  onClick={() => onFocus(isFocused ? undefined : { stepId: id })}
                >
                  <span class="step-title">{title}</span>
                  <span class="step-meta">
                    {(words?.short ?? [status]).join(' · ')}
                    {step?.kind === 'agent' && ' · sub-agent'}
                    {step?.model !== undefined && ` · ${visibleLine(step.model, 60)}`}
                    {needs.length > 0 && (
                      <span class="visually-hidden">, after {titlesOf(plan, needs).join(', ')}</span>
                    )}
                  </span>
                </button>
              )
            }}
          />
        </>
      )}
      {isOpen && agents.length > 0 && (
        <>
          <h3 class="sub-head">Sub-agents</h3>
          <ul class="agents">
            {agents.map(([agentPath, agent]) => (
              <li key={agentPath}>
                <button
                  type="button"
                  class="plain agent"
                  aria-pressed={focusedAgent === agentPath}
                  onClick={() => onFocus(focusedAgent === agentPath ? undefined : { agentPath })}
                >
                  <span class="step-title">{visibleLine(agentPath.replace(/^root\//, ''))}</span>
                  <span class="step-meta">{visibleLine(agent.brief, 120)}</span>
                </button>
                <Status status={agent.state} />
                {agent.state === 'running' && onCancelAgent !== undefined && (
                  <ActionButton
                    class="small"
                    aria-label={`Cancel the sub-agent ${visibleLine(agentPath)}`}
                    run={() => onCancelAgent(agentPath)}
                  >
                    Cancel
                  </ActionButton>
                )}
              </li>
            ))}
          </ul>
        </>
      )}
    </section>
  )
}

function numberOf(
  listed: readonly { readonly id: string }[],
  steps: RunState['steps'],
  state: string,
): number {
  return listed.filter(({ id }) => stateOf(steps, id) === state).length
}

function stateOf(steps: RunState['steps'], id: string): string {
  return (Object.hasOwn(steps, id) ? steps[id]?.state : undefined) ?? 'pending'
}
