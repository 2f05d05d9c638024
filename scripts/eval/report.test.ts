import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '../../specs/testing/temporary-folder.ts'
import { type Attempt, readAttempts } from './attempts.ts'
import { compareAttempts, renderComparison, renderSummary, shareOf, summarize } from './report.ts'

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

  it('a cost that is unknown once makes the sum unknown', () => {
    expect(summarize([attemptAt('a', true), attemptAt('b', false)])).toMatchObject({
      ...{ tasks: 2, turns: 4, tokens: 1_000, seconds: 2, costUsd: 0.02 },
      success: { passed: 1, of: 2 },
    })
    const summary = summarize([attemptAt('a', true), attemptAt('b', true, { costUsd: null })])
    expect(summary.costUsd).toBeNull()
    expect(renderSummary('m', summary)).toContain('| cost, sum | unknown |')
  })

  it('two evaluations are compared task by task, over the tasks of both, with an exact sign test [T.05]', () => {
    const names = ['a', 'b', 'c', 'd', 'e', 'f']
    const left = names.map((name) => attemptAt(name, false))
    const right = [...names.map((name) => attemptAt(name, true)), attemptAt('more', true)]
    const comparison = compareAttempts(left, right)
    expect(comparison).toMatchObject({ betterInA: [], betterInB: names, equal: 0, chance: 0.03125 })
    expect(comparison.b.tasks).toBe(6)
    expect(compareAttempts(left, left)).toMatchObject({ equal: 6, chance: 1 })
    const text = renderComparison(['old', 'new'], comparison)
    expect(text).toContain('| passed (95 % interval) | 0 of 6 (0 % to 39 %) | 6 of 6 (61 % to 100 %) |')
    expect(text).toContain('Better in new (6): a, b, c, d, e, f.')
    expect(text).toContain('p = 0.031')
  })

  it('a last line that a stopped process left does not count; other damage is refused [T.05]', async () => {
    const file = path.join(await temporaryFolder('eval'), 'attempts.jsonl')
    const line = JSON.stringify(attemptAt('a', true))
    writeFileSync(file, `${line}\n${line.slice(0, 20)}`)
    expect(readAttempts(file)).toEqual([attemptAt('a', true)])
    writeFileSync(file, `${line}\n{"task":1}\n${line}\n`)
    expect(() => readAttempts(file)).toThrow('line 2 is no attempt')
  })
})
