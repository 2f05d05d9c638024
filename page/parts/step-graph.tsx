/** Steps as a graph: a row for each, with lines from what it waits for. */
import type { ComponentChildren } from 'preact'
import type { PlacedPlan, PlacedStep } from './plan-lanes.ts'

const rowHeight = 44
const laneWidth = 18
const inset = 13

export interface StepGraphProps {
  readonly placed: PlacedPlan
  /** State of a step, such as `completed`, which gives its color. */
  readonly stateOf: (id: string) => string
  readonly row: (step: PlacedStep) => ComponentChildren
}

export function StepGraph({ placed: { steps, lanes }, stateOf, row }: StepGraphProps) {
  return (
    <div class="graph" style={{ paddingLeft: `${lanes * laneWidth + 8}px` }}>
      <Rails {...{ steps, lanes, stateOf }} />
      <ol>
        {steps.map((step) => (
          <li key={step.id} style={{ height: `${rowHeight}px` }}>
            {row(step)}
          </li>
        ))}
      </ol>
    </div>
  )
}

const x = (lane: number) => inset + lane * laneWidth
const y = (row: number) => row * rowHeight + rowHeight / 2

/** Lines from what a step waits for, and a circle for each step. */
function Rails({
  steps,
  lanes,
  stateOf,
}: {
  readonly steps: readonly PlacedStep[]
  readonly lanes: number
  readonly stateOf: StepGraphProps['stateOf']
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
          class={`rail rail-${stateOf(to.id) === 'skipped' ? 'skipped' : stateOf(from.id)}`}
          d={isCrossed(from, to, steps) ? bowPath(from, to) : edgePath(from, to)}
        />
      ))}
      {steps.map(({ id, lane, row }) => (
        <g key={id} class={`node node-${stateOf(id)}`}>
          <circle cx={x(lane)} cy={y(row)} r="6" />
          {stateOf(id) === 'completed' && (
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

/** Whether another step is between the two in their lane. */
function isCrossed(from: PlacedStep, to: PlacedStep, steps: readonly PlacedStep[]): boolean {
  return steps.some(
    ({ lane, row }) => lane === from.lane && lane === to.lane && row > from.row && row < to.row,
  )
}

/** Beside the steps in between, to which the line does not belong. */
function bowPath(from: PlacedStep, to: PlacedStep): string {
  const [x1, y1, y2] = [x(from.lane), y(from.row), y(to.row)]
  return `M${x1} ${y1}C${x1 + 14} ${y1 + 16} ${x1 + 14} ${y2 - 16} ${x1} ${y2}`
}
