import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '../../specs/testing/temporary-folder.ts'
import { type Attempt, readAttempts } from './attempts.ts'
import { renderComparison, renderSummary, renderTasks } from './render.ts'
import { compareAttempts, meanOf, shareOf, summarize } from './report.ts'

const attemptAt = (task: string, passed: boolean, more: Partial<Attempt> = {}): Attempt => ({
  ...{ task, attempt: 1, runId: 'r1', model: 'm', passed, problems: [], end: 'completed', turns: 4 },
  ...{ inputTokens: 900, outputTokens: 100, costUsd: 0.01, durationMs: 2_000 },
  ...more,
})

describe('figures of an evaluation', () => {
  it('a share has the interval of Wilson, also for none and all [T.05]', () => {
    const rounded = (passed: number, of: number) => {
      const { from, to } = shareOf(passed, of)
      return [from, to].map((bound) => Number(bound.toFixed(3)))
    }
    expect(rounded(8, 10)).toEqual([0.49, 0.943])
    expect(rounded(0, 10)).toEqual([0, 0.278])
    expect(rounded(10, 10)).toEqual([0.722, 1])
    expect(rounded(0, 0)).toEqual([0, 1])
  })

  it('a mean has an interval by resampling, the same each time, and none wider than its values', () => {
    const found = meanOf([1, 2, 3, 4, 10])
    expect(found).toEqual(meanOf([1, 2, 3, 4, 10]))
    expect(found.mean).toBe(4)
    expect(found.from).toBeGreaterThan(1)
    expect(found.from).toBeLessThan(4)
    expect(found.to).toBeGreaterThan(4)
    expect(found.to).toBeLessThan(10)
    expect(meanOf([5])).toEqual({ mean: 5, from: 5, to: 5 })
    expect(meanOf([])).toEqual({ mean: 0, from: 0, to: 0 })
  })

  it('a cost that is unknown once makes the sum unknown; each task counts once in a mean', () => {
    const twice = [attemptAt('b', false, { turns: 2 }), attemptAt('b', false, { turns: 4, attempt: 2 })]
    expect(summarize([attemptAt('a', true, { turns: 5 }), ...twice])).toMatchObject({
      ...{ tasks: 2, turns: { mean: 4 }, tokens: { mean: 1_000 }, seconds: { mean: 2 } },
      ...{ costUsd: { mean: 0.01 }, totalCostUsd: 0.03, success: { passed: 1, of: 3 } },
    })
    const unknown = [attemptAt('a', true), attemptAt('b', true, { costUsd: null })]
    expect(summarize(unknown)).toMatchObject({ costUsd: null, totalCostUsd: null })
    expect(renderSummary(unknown)).toContain('| cost of all attempts | unknown |')
  })

  it('lists tasks, and the runs of what did not pass', () => {
    const text = renderTasks([attemptAt('a', true), attemptAt('b', false, { end: 'failed: limit_turns' })])
    expect(text).toContain('| a | 1 of 1 | 4.0 | 1000 | 2.0 | $0.0100 |')
    expect(text).toContain('- b, attempt 1: failed: limit_turns, r1')
  })

  it('two evaluations are compared task by task, over the tasks of both, with an exact sign test [T.05]', () => {
    const names = ['a', 'b', 'c', 'd', 'e', 'f']
    const left = names.map((name) => attemptAt(name, false))
    const right = [...names.map((name) => attemptAt(name, true, { turns: 3 })), attemptAt('more', true)]
    const comparison = compareAttempts(left, right)
    expect(comparison).toMatchObject({ betterInA: [], betterInB: names, equal: 0, chance: 0.03125 })
    expect(comparison.b.tasks).toBe(6)
    expect(comparison.difference.turns).toEqual({ mean: -1, from: -1, to: -1 })
    expect(compareAttempts(left, left)).toMatchObject({ equal: 6, chance: 1 })
    expect(compareAttempts(left, [attemptAt('more', true)])).toMatchObject({ equal: 0, chance: 1 })
    const text = renderComparison(comparison)
    expect(text).toContain(
      '| passed | 0 of 6 (0 % to 39 %) | 6 of 6 (61 % to 100 %) | 100 % (100 % to 100 %) |',
    )
    expect(text).toContain('Better in B (6): a, b, c, d, e, f.')
    expect(text).toContain('p = 0.031')
  })

  it('a last line that a stopped process left does not count; other damage is refused [T.05]', async () => {
    const file = path.join(await temporaryFolder('eval'), 'attempts.jsonl')
    const line = JSON.stringify(attemptAt('a', true))
    writeFileSync(file, `${line}\n${line.slice(0, 20)}`)
    expect(readAttempts(file)).toEqual([attemptAt('a', true)])
    writeFileSync(file, `${line}\n{"task":1}\n${line}\n`)
    expect(() => readAttempts(file)).toThrow('line 2 is no attempt')
    // Reports print these fields.
    for (const bad of [{ task: 'a\u001b[2J' }, { model: 'm | x' }, { end: 'failed\n# Title' }]) {
      writeFileSync(file, `${JSON.stringify({ ...attemptAt('a', true), ...bad })}\n`)
      expect(() => readAttempts(file)).toThrow('line 1 is no attempt')
    }
  })
})
