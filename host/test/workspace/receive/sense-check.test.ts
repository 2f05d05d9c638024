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

  const name = (bytes: number) => 'x'.repeat(bytes)
  /** As many names of 254 bytes as make a path of this length, and one more for the rest. */
  const long = (bytes: number) => `${`${name(254)}/`.repeat(Math.floor(bytes / 255))}${name(bytes % 255)}`

  type Entries = readonly (readonly [Parameters<SenseCheck['next']>[0]['kind'], string])[]
  const before = treeOf({ 'd/in': 'in', 'd/sub/deep': 'deep', f: 'f', link: '-> f' })

  it.each<[string, Entries]>([
    [
      'what is deleted below a directory whose mode changed',
      [
        ['mode', 'd'],
        ['deleted', 'd/in'],
      ],
    ],
    [
      'what is deleted below a directory that is named again',
      [
        ['directory', 'd'],
        ['deleted', 'd/in'],
      ],
    ],
    [
      'what is deleted below two directories whose modes changed',
      [
        ['mode', 'd'],
        ['mode', 'd/sub'],
        ['deleted', 'd/sub/deep'],
      ],
    ],
    [
      'a new file far below a directory whose mode changed',
      [
        ['mode', 'd'],
        ['file', 'd/sub/new'],
      ],
    ],
    [
      'a new file far below a directory that is named again',
      [
        ['directory', 'd'],
        ['file', 'd/sub/new'],
      ],
    ],
    ['a name of 255 bytes', [['file', name(255)]]],
  ])('takes %s [C.02]', async (_, entries) => {
    using bench = new Bench(before)
    const check = new SenseCheck((await bench.takeIn()).manifest)
    for (const [kind, path] of entries) check.next({ kind, path })
  })

  it.each<[Entries, string]>([
    [[['file', long(4_096)]], 'its path is too long'],
    [[['file', long(4_095)]], 'above it is no directory'],
    [[['file', name(256)]], 'a name in it is too long'],
    [
      [
        ['directory', 'n'],
        ['file', 'n/x/y'],
      ],
      '"n/x/y": the directory "n/x" above it is missing',
    ],
    [
      [
        ['file', 'n'],
        ['file', 'n/x'],
      ],
      '"n/x": "n" above it is no directory in the same change set',
    ],
    [
      [
        ['file', 'n'],
        ['file', 'n/x/y'],
      ],
      '"n/x/y": "n" above it is no directory in the same change set',
    ],
    [
      [
        ['mode', 'f'],
        ['file', 'f/x'],
      ],
      '"f/x": "f" above it is no directory in the same change set',
    ],
    [
      [
        ['deleted', 'd'],
        ['file', 'd/sub/x'],
      ],
      '"d/sub/x": "d" above it is no directory in the same change set',
    ],
    [[['file', 'link/x']], '"link/x": "link" above it is no directory'],
    [[['mode', 'link']], '"link": its mode changed but no file or directory of that path went in'],
    [[['deleted', name(250)]], `"${name(200)}": it is deleted but never went in`],
  ])('refuses the last of %j, and says why [C.02]', async (entries, why) => {
    using bench = new Bench(before)
    const check = new SenseCheck((await bench.takeIn()).manifest)
    const [last, ...first] = entries.toReversed()
    for (const [kind, path] of first.toReversed()) check.next({ kind, path })
    if (last === undefined) throw new Error('no entry')
    expect(() => check.next({ kind: last[0], path: last[1] })).toThrow(why)
  })
})
