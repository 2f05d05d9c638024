import { describe, expect, it } from 'vitest'
import type { PathChange } from '#specs/node/change-encoder.ts'
import { limits } from '#specs/protocol/limits.ts'
import { readChangeSet } from '../../workspace/change-set.ts'
import { outlineChanges } from '../../workspace/review/diff.ts'
import { reviewChanges } from '../../workspace/review/review.ts'
import { Bench, turnsDuring, unwrap } from './support.ts'

type Change = { entry: PathChange; content?: Buffer }

describe('a deep change set', () => {
  /** `depth` directories within one another, named in turn, with `siblings` files in the last. */
  function* deep(depth: number, siblings: number, names: readonly string[] = ['dd']): Generator<Change> {
    let path = names[0] ?? ''
    yield { entry: { kind: 'directory', path, mode: 0o755 } }
    for (let at = 1; at < depth; at++) {
      path = `${path}/${names[at % names.length]}`
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

  it('of repositories in one another costs little more than one of other directories [T.02 W.03]', {
    timeout: 120_000,
  }, async () => {
    using bench = new Bench()
    const { manifest } = await bench.takeIn()
    const costOf = async (names: readonly string[]): Promise<number> => {
      const changes = unwrap(await bench.receive(manifest, deep(limits.changeMaxDepth, 2_000, names)))
      const start = process.cpuUsage()
      unwrap(await outlineChanges(manifest, changes))
      return process.cpuUsage(start).user
    }
    await costOf(['dd'])
    const plain = await costOf(['.gat', 'modules'])
    for (const names of [
      ['.git', 'modules'],
      ['.github', 'workflows'],
    ])
      expect((await costOf(names)) / plain, names.join()).toBeLessThan(10)
  })

  it('of more than a thousand repositories flags those beyond, while other tasks have their turn [T.02 W.03]', async () => {
    using bench = new Bench()
    const { manifest } = await bench.takeIn()
    const content = Buffer.from('ref: refs/heads/main\n')
    function* many(): Generator<Change> {
      for (let at = 0; at < 1_500; at++) {
        const folder = `r${String(at).padStart(5, '0')}`
        yield { entry: { kind: 'directory', path: folder, mode: 0o755 } }
        yield { entry: { kind: 'directory', path: `${folder}/.git`, mode: 0o755 } }
        yield {
          entry: { kind: 'file', path: `${folder}/.git/HEAD`, mode: 0o644, size: content.length },
          content,
        }
      }
    }
    const changes = unwrap(await bench.receive(manifest, many()))
    expect(await turnsDuring(() => outlineChanges(manifest, changes))).toBeGreaterThan(10)
    using review = unwrap(await reviewChanges(manifest, changes))
    const beyond = review.items.filter(({ flagged }) => flagged?.includes('too many git repositories'))
    expect(beyond.map(({ path }) => path).slice(0, 1)).toEqual(['r01000/.git/HEAD'])
    expect(beyond).toHaveLength(500)
  })
})
