// Contents that a run gets in the place of what the disk has: what goes in, what stays out, and what its changes compare with.
import { closeSync, mkdirSync, openSync, symlinkSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { png } from '#specs/testing/images.ts'
import { readGivenContents } from '../../runs/given-contents.ts'
import { readTaskImages } from '../../runs/task-images.ts'
import { readFromDisk } from '../../workspace/index.ts'
import { beginChanging, placeOfRuns, runThatCopied } from '../support/changed-run.ts'
import { treeOf } from '../workspace/support.ts'

const runId = 'run-0123456789abcdef4567'
const given = (contents: Record<string, string>) =>
  new Map(Object.entries(contents).map(([name, text]) => [name, Buffer.from(text)]))

describe('a content that is given for a run', () => {
  it('is in the VM in the place of the file, or as a new one, and nothing of it is on the disk [W.01]', async () => {
    const { host, directory } = await placeOfRuns({ 'a.txt': 'saved\n', 'b.txt': 'b\n', 'docs/c.txt': 'c\n' })
    const contents = given({ 'a.txt': 'not saved\n', 'docs/new.txt': 'new\n' })
    const { record, manifest, fileNids, readBefore } = await copied(host, directory, contents)
    await using _ = record
    expect([...manifest.entries.keys()]).toEqual(['a.txt', 'b.txt', 'docs', 'docs/c.txt', 'docs/new.txt'])
    expect([...fileNids.keys()].map((name) => readBefore(name))).toEqual([
      'not saved\n',
      'b\n',
      'c\n',
      'new\n',
    ])
    expect(await readFile(path.join(directory, 'a.txt'), 'utf8')).toBe('saved\n')
  })

  it('stays out where the file would: secret, ignored, or a link [W.02]', async () => {
    const { host, directory } = await placeOfRuns({
      ...{ '.env': 'KEY=1\n', '.gitignore': '*.log\n', 'a.txt': 'a\n', 'link.txt': '-> /etc/passwd' },
      'keys/id_rsa': 'key\n',
    })
    const contents = given({
      ...{ '.env': 'KEY=2\n', 'x.log': 'log\n', 'link.txt': 'linked\n', 'keys/id_rsa': 'key\n' },
      '.npmrc': '//registry/:_authToken=abc\n',
    })
    const { record, manifest } = await copied(host, directory, contents)
    await using _ = record
    expect(manifest.leftOut).toEqual([
      { path: '.env', reason: 'secret' },
      { path: '.npmrc', reason: 'secret' },
      { path: 'keys/id_rsa', reason: 'secret' },
      { path: 'x.log', reason: 'ignored' },
    ])
    expect(manifest.entries.get('link.txt')).toMatchObject({ kind: 'link' })
    const inspected = ['.env', '.npmrc', 'keys/id_rsa', 'x.log', 'a.txt', 'none.txt', 'none/a.txt']
    const npmrc = { '.npmrc': '//registry/:_authToken=abc\n' }
    expect(await host.inspectPaths(inspected, { workspace: directory, contents: npmrc })).toEqual({
      ...{ '.env': 'secret', '.npmrc': 'secret', 'keys/id_rsa': 'secret', 'x.log': 'missing' },
      ...{ 'a.txt': 'copied', 'none.txt': 'missing', 'none/a.txt': 'missing' },
    })
  })

  it('is what the changes compare with: they apply once the disk has it, and an undo restores it [V.05]', async () => {
    const { host, directory } = await placeOfRuns({ 'a.txt': 'saved\n' })
    const end = await beginChanging(host, directory, runId, undefined, given({ 'a.txt': 'not yet\n' }))
    await end(treeOf({ 'a.txt': 'not yet\n' }), treeOf({ 'a.txt': 'not yet\nmore\n' }))
    const changes = await host.changes(runId)
    expect(await changes.review()).toMatchObject([{ path: 'a.txt', state: { kind: 'conflict' } }])
    expect(await changes.apply('all')).toMatchObject({ applied: [], conflicts: [{ path: 'a.txt' }] })
    const file = path.join(directory, 'a.txt')
    expect(await readFile(file, 'utf8')).toBe('saved\n')
    const { base, host: now } = await changes.versions('a.txt')
    expect([base, now]).toMatchObject([
      { content: Buffer.from('not yet\n') },
      { content: Buffer.from('saved\n') },
    ])
    await writeFile(file, 'not yet\n')
    expect(await changes.apply('all')).toMatchObject({ conflicts: [], applied: ['a.txt'] })
    expect(await readFile(file, 'utf8')).toBe('not yet\nmore\n')
    await changes.undo()
    expect(await readFile(file, 'utf8')).toBe('not yet\n')
  })

  it('of the size of the file is not taken for it [V.05]', async () => {
    const { host, directory } = await placeOfRuns({ 'a.txt': 'one\n' })
    const end = await beginChanging(host, directory, runId, undefined, given({ 'a.txt': 'two\n' }))
    await end(treeOf({ 'a.txt': 'two\n' }), treeOf({ 'a.txt': 'three\n' }))
    expect(await (await host.changes(runId)).apply('all')).toMatchObject({ conflicts: [{ path: 'a.txt' }] })
  })

  it.each([
    ['link/a.txt', 'a link is on its way'],
    ['link.txt', 'a link is on its way'],
    ['folder', 'it is no regular file'],
    ['none/a.txt', 'its directory is not there'],
  ])('is refused for %s: %s [W.01]', async (name, words) => {
    const { directory } = await placeOfRuns({ 'a.txt': 'a\n' })
    mkdirSync(path.join(directory, 'folder'))
    symlinkSync('folder', path.join(directory, 'link'))
    symlinkSync('a.txt', path.join(directory, 'link.txt'))
    expect(() => readGivenContents({ [name]: 'x' }, directory)).toThrow(words)
  })

  it('is refused beyond 4 MiB, and can be an image of the task [H.01]', async () => {
    const { directory } = await placeOfRuns({})
    const many = Object.fromEntries(Array.from({ length: 20 }, (_, at) => [`${at}`, 'x'.repeat(250_000)]))
    expect(() => readGivenContents(many, directory)).toThrow('more than 4194304 bytes')
    const contents = readGivenContents({ 'p.png': { base64: png(4, 4).toString('base64') } }, directory)
    expect(readTaskImages(['p.png'], directory, contents)).toMatchObject([
      { path: 'p.png', image: { type: 'image/png' } },
    ])
    expect(() => readTaskImages(['p.png'], directory, given({ 'p.png': 'no image' }))).toThrow('p.png')
  })
})

async function copied(
  host: Parameters<typeof runThatCopied>[0],
  directory: string,
  contents: ReadonlyMap<string, Buffer>,
) {
  const run = await runThatCopied(host, directory, runId, undefined, contents)
  const disk = openSync(run.paths.disk, 'r')
  onTestFinished(() => closeSync(disk))
  const read = readFromDisk(disk, run.fileNids)
  return { ...run, readBefore: (name: string) => read(name, '')?.toString('utf8') }
}
