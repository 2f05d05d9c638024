import { describe, expect, it } from 'vitest'
import type { PathChange } from '#specs/node/change-encoder.ts'
import { limits } from '#specs/protocol/limits.ts'
import { readChangeSet } from '../../workspace/change-set.ts'
import { outlineChanges } from '../../workspace/review/diff.ts'
import { Bench, turnsDuring, unwrap } from './support.ts'

type Change = { entry: PathChange }

describe('a deep change set', () => {
  /** `depth` directories within one another, with `siblings` files in the last. */
  function* deep(depth: number, siblings: number): Generator<Change> {
    let path = 'd'
    yield { entry: { kind: 'directory', path, mode: 0o755 } }
    for (let at = 1; at < depth; at++) {
      path = `${path}/dd`
      yield { entry: { kind: 'directory', path, mode: 0o755 } }
    }
    for (let at = 0; at < siblings; at++)
      yield { entry: { kind: 'link', path: `${path}/${String(at).padStart(6, '0')}`, target: 'x' } }
  }

  it('is refused beyond the depth that the guest may send [W.01]', async () => {
    using bench = new Bench()
    const { manifest } = await bench.takeIn()
    unwrap(await bench.receive(manifest, deep(limits.changeMaxDepth, 1)))
    const refused = await bench.receive(manifest, deep(limits.changeMaxDepth + 1, 1))
    expect(refused).toMatchObject({ ok: false, error: { code: 'invalid_changes' } })
    expect(refused.ok ? '' : refused.error.message).toContain('more than 256 directories deep')
  })

  it('is reviewed while other tasks have their turn, and costs little more than a flat one [W.02]', {
    timeout: 120_000,
  }, async () => {
    using bench = new Bench()
    const { manifest } = await bench.takeIn()
    const changes = unwrap(await bench.receive(manifest, deep(limits.changeMaxDepth, 20_000)))
    expect(await turnsDuring(() => readChangeSet(bench.run, changes.sha256))).toBeGreaterThan(10)
    const start = process.cpuUsage()
    expect(await turnsDuring(() => outlineChanges(manifest, changes))).toBeGreaterThan(10)
    const deepCost = process.cpuUsage(start).user
    const flat = unwrap(await bench.receive(manifest, deep(1, 20_000 + limits.changeMaxDepth)))
    const flatStart = process.cpuUsage()
    unwrap(await outlineChanges(manifest, flat))
    expect(deepCost / process.cpuUsage(flatStart).user).toBeLessThan(10)
  })
})
