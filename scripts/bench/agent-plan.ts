/** What scheduling takes: a plan of fifty steps whose steps do nothing, every event checked as the host does. */

import { executePlan, type StepRunner } from '../../agent/plan/executor.ts'
import { PlanState } from '../../agent/plan/plan-state.ts'
import { makeRun } from '../../agent/test/support/run.ts'
import { Plan } from '../../specs/protocol/plan.ts'
import type { Figures } from './bench.ts'
import { figureOf, repeats, reportProgress } from './figures.ts'

const samples = repeats(50)
const warmUpSamples = repeats(10)

const doNothing: StepRunner = async () => ({
  state: 'completed',
  text: 'done',
  reason: 'completed',
  history: [],
})

export async function measurePlan(): Promise<Figures> {
  reportProgress('a plan of 50 steps')
  const found: number[] = []
  for (let count = -warmUpSamples; count < samples; count++) {
    const { run } = makeRun({ model: () => Promise.reject(new Error('no step asks a model')) })
    const book = await PlanState.open(makePlan(), run)
    const before = performance.now()
    const { outcome } = await executePlan(book, run, { performStep: doNothing })
    const tookMs = performance.now() - before
    // Its timer would keep this process alive.
    run.budget.stop()
    if (outcome !== 'completed') throw new Error(`expected the plan to complete, and it ${outcome}`)
    if (count >= 0) found.push(tookMs)
  }
  return { plan50Ms: figureOf(found) }
}

/** Five lanes that meet every ten steps. */
function makePlan(): Plan {
  const needsOf = (at: number): string[] => {
    if (at < 5) return []
    return at % 10 === 0 ? [1, 2, 3, 4, 5].map((back) => `step-${at - back}`) : [`step-${at - 5}`]
  }
  return Plan.parse({
    goal: 'fifty steps',
    steps: Array.from({ length: 50 }, (_, at) => ({
      id: `step-${at}`,
      title: `step ${at}`,
      instructions: 'do nothing',
      needs: needsOf(at),
      writes: [`out/${at}.txt`],
    })),
  })
}
