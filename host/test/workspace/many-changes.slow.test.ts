import { describe, expect, it } from 'vitest'
import type { PathChange } from '#specs/node/change-encoder.ts'
import { outlineChanges } from '../../workspace/review/diff.ts'
import { reviewChanges } from '../../workspace/review/review.ts'
import { apply } from './apply-support.ts'
import { Bench, turnsDuring, unwrap } from './support.ts'

describe('a change set of 200,000 entries', () => {
  const count = 200_000

  it('is reviewed while other tasks have their turn, then applied, and reported as applied [W.01]', {
    timeout: 900_000,
  }, async () => {
    using bench = new Bench()
    const { manifest } = await bench.takeIn()
    const links: { entry: PathChange }[] = Array.from({ length: count }, (_, at) => {
      const entry = { kind: 'link', path: `l${String(at).padStart(6, '0')}`, target: 'x' } as const
      return { entry }
    })
    const changes = unwrap(await bench.receive(manifest, links))
    expect(await turnsDuring(() => outlineChanges(manifest, changes))).toBeGreaterThan(50)
    using review = unwrap(await reviewChanges(manifest, changes))
    const summary = await apply(bench, review)
    expect(summary).toMatchObject({ conflicts: [], failed: [], leftOut: [] })
    expect(summary.applied.length).toBe(count)
  })
})
