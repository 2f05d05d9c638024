/** The plan as a graph of steps with their states, and the sub-agents below it. */
import { useMemo, useState } from 'preact/hooks'
import type { RunState } from '#specs/protocol/run-state.ts'
import { ActionButton, Status } from '../parts/parts.tsx'
import { visible, visibleLine } from '../parts/text.ts'
import { type PlacedStep, placeSteps } from './plan-lanes.ts'

const rowHeight = 44
const laneWidth = 18
const inset = 13

export interface PlanViewProps {
  readonly state: RunState
  /** Step or sub-agent whose entries the log shows alone. */
  readonly focus: Focus | undefined
  readonly onFocus: (focus: Focus | undefined) => void
  /** Cancels a sub-agent; absent where the run is over. */
  readonly onCancelAgent?: (agentPath: string) => Promise<unknown>
}

export type Focus = { readonly stepId: string } | { readonly agentPath: string }

export function PlanView({ state, focus, onFocus, onCancelAgent }: PlanViewProps) {
  const { plan, steps } = state
  const placed = useMemo(() => (plan === null ? undefined : placeSteps(plan)), [plan])
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
            Plan
          </button>
        </h2>
        {state.revision > 1 && <span class="hint">revision {state.revision}</span>}
        {plan !== null && (
          <span class="hint">
            {plan.steps.filter(({ id }) => stateOf(steps, id) === 'completed').length} of {plan.steps.length}{' '}
            done
          </span>
        )}
      </header>
      {isOpen && plan === null && (
        <p class="hint pad">{state.end === null ? 'There is no plan yet.' : 'The run had no plan.'}</p>
      )}
      {isOpen && plan !== null && placed !== undefined && (
        <>
          <p class="goal">{visible(plan.goal)}</p>
          <div class="graph" style={{ paddingLeft: `${placed.lanes * laneWidth + 8}px` }}>
            <Rails steps={placed.steps} states={steps} lanes={placed.lanes} />
            <ol>
              {placed.steps.map(({ id, needs }) => {
                const step = plan.steps.find((other) => other.id === id)
                const status = stateOf(steps, id)
                const isFocused = focusedStep === id
                return (
                  <li key={id} style={{ height: `${rowHeight}px` }}>
                    <button
                      type="button"
                      class={`step plain step-${status}`}
                      aria-pressed={isFocused}
                      title={visibleLine(step?.title ?? id)}
                      onClick={() => onFocus(isFocused ? undefined : { stepId: id })}
                    >
                      <span class="step-title">{visibleLine(step?.title ?? id)}</span>
                      <span class="step-meta">
                        {status}
                        {step?.kind === 'agent' && ' · sub-agent'}
                        {step?.model !== undefined && ` · ${visibleLine(step.model, 60)}`}
                        {needs.length > 0 && <span class="visually-hidden">, after {needs.join(', ')}</span>}
                      </span>
                    </button>
                  </li>
                )
              })}
            </ol>
          </div>
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

function stateOf(steps: RunState['steps'], id: string): string {
  return (Object.hasOwn(steps, id) ? steps[id]?.state : undefined) ?? 'pending'
}

const x = (lane: number) => inset + lane * laneWidth
const y = (row: number) => row * rowHeight + rowHeight / 2

/** Lines from what a step waits for, and a circle for each step. */
function Rails({
  steps,
  states,
  lanes,
}: {
  readonly steps: readonly PlacedStep[]
  readonly states: RunState['steps']
  readonly lanes: number
}) {
  const byId = new Map(steps.map((step) => [step.id, step]))
  const edges = steps.flatMap((step) =>
    step.needs.flatMap((need) => {
      const from = byId.get(need)
      return from === undefined ? [] : [{ from, to: step }]
    }),
  )
  return (
    <svg class="rails" aria-hidden="true" width={lanes * laneWidth + inset} height={steps.length * rowHeight}>
      {edges.map(({ from, to }) => (
        <path
          key={`${from.id} ${to.id}`}
          class={`rail rail-${stateOf(states, from.id)}`}
          d={edgePath(from, to)}
        />
      ))}
      {steps.map(({ id, lane, row }) => (
        <g key={id} class={`node node-${stateOf(states, id)}`}>
          <circle cx={x(lane)} cy={y(row)} r="6" />
          {stateOf(states, id) === 'completed' && (
            <path d={`M${x(lane) - 2.8} ${y(row) + 0.2}l2 2.1 3.800-4.300`} class="tick" />
          )}
        </g>
      ))}
    </svg>
  )
}

/** Straight down in the lane of the later step, with a bend behind the earlier one. */
function edgePath(from: PlacedStep, to: PlacedStep): string {
  const [x1, y1, x2, y2] = [x(from.lane), y(from.row), x(to.lane), y(to.row)]
  if (x1 === x2) return `M${x1} ${y1}V${y2}`
  const bend = x2 > x1 ? y1 + rowHeight * 0.8 : y2
  const start = bend - rowHeight * 0.8
  return `M${x1} ${y1}V${start}C${x1} ${bend - 8} ${x2} ${start + 8} ${x2} ${bend}V${y2}`
}
