import { describe, expect, it } from 'vitest'
import type { Manifest, ManifestEntry } from '../../../workspace/manifest.ts'
import { SenseCheck } from '../../../workspace/receive/sense-check.ts'
import { Bench, treeOf } from '../support.ts'

/** Counts how often it is asked. */
class CountedEntries extends Map<string, ManifestEntry> {
  asked = 0
  override get(path: string): ManifestEntry | undefined {
    this.asked++
    return super.get(path)
  }
}

describe('the sense of a change set', () => {
  it('costs the same for each entry, however deep it lies [T.02]', async () => {
    using bench = new Bench(treeOf({ 'a/b': 'b' }))
    const { manifest } = await bench.takeIn()
    const entries = new CountedEntries(manifest.entries)
    const counted: Manifest = { ...manifest, entries }
    const depth = 1_000
    const check = new SenseCheck(counted)
    let path = 'a'
    check.next({ kind: 'mode', path })
    for (let at = 0; at < depth; at++) {
      path += '/d'
      check.next({ kind: 'directory', path })
    }
    for (let at = 0; at < depth; at++) check.next({ kind: 'file', path: `${path}/${at}` })
    expect(entries.asked).toBeLessThan(5 * depth)
  })

  it('knows what is below a new directory as new, and what comes after it by the manifest again [C.02]', async () => {
    using bench = new Bench(treeOf({ 'was-file': 'x', 'z/in': 'z' }))
    const { manifest } = await bench.takeIn()
    const check = new SenseCheck(manifest)
    check.next({ kind: 'directory', path: 'was-file' })
    check.next({ kind: 'directory', path: 'was-file/sub' })
    const refused = () => check.next({ kind: 'deleted', path: 'was-file/sub/in' })
    expect(refused).toThrow('deleted but never went in')
    check.next({ kind: 'deleted', path: 'z/in' })
  })
})
