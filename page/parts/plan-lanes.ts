/** Places steps as rows with lanes, as a graph of commits is drawn. Pure. */

/** `needs`: ids of the steps that it waits for. */
export interface WaitingStep {
  readonly id: string
  readonly needs: readonly string[]
}

export interface PlacedStep {
  readonly id: string
  readonly row: number
  readonly lane: number
  /** Ids of the steps that it waits for. */
  readonly needs: readonly string[]
}

export interface PlacedPlan {
  readonly steps: readonly PlacedStep[]
  readonly lanes: number
}

/** Each step is below what it waits for; steps that can run at the same time have lanes of their own. */
export function placeSteps(steps: readonly WaitingStep[]): PlacedPlan {
  const order = orderOf(steps)
  const children = new Map<string, number>()
  for (const { needs } of order) for (const need of needs) children.set(need, (children.get(need) ?? 0) + 1)
  /** Step that each lane continues from; undefined: the lane is free. */
  const lanes: (string | undefined)[] = []
  const placed: PlacedStep[] = []
  for (const [row, { id, needs }] of order.entries()) {
    for (const need of needs) children.set(need, (children.get(need) ?? 1) - 1)
    let lane = lanes.findIndex((holder) => holder !== undefined && needs.includes(holder))
    if (lane === -1) lane = lanes.indexOf(undefined)
    if (lane === -1) lane = lanes.length
    lanes[lane] = id
    placed.push({ id, row, lane, needs })
    for (const [index, holder] of lanes.entries())
      if (holder !== undefined && (children.get(holder) ?? 0) === 0 && holder !== id) lanes[index] = undefined
    if ((children.get(id) ?? 0) === 0) lanes[lane] = undefined
  }
  return { steps: placed, lanes: Math.max(1, lanes.length) }
}

/** In their order, but each behind its needs. */
function orderOf(steps: readonly WaitingStep[]): WaitingStep[] {
  const known = new Set(steps.map(({ id }) => id))
  const waiting = steps.map((step) => ({
    id: step.id,
    needs: [...new Set(step.needs)].filter((id) => known.has(id)),
  }))
  const done = new Set<string>()
  const order: typeof waiting = []
  while (waiting.length > 0) {
    const ready = waiting.findIndex(({ needs }) => needs.every((need) => done.has(need)))
    // Plans and workflows have no cycle; were there one, its steps would keep their order.
    const [next] = waiting.splice(Math.max(0, ready), 1)
    if (next === undefined) break
    done.add(next.id)
    order.push(next)
  }
  return order
}
