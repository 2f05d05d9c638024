import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { decodeChanges } from '#specs/node/change-stream.ts'
import { applyChanges, operations, perform, snapshot } from '../../agent/test/support/trees.ts'
import { ensureAgentDisk } from '../../host/image/agent-disk.ts'
import { ensureRootImage } from '../../host/image/root-image.ts'
import { findSources } from '../../host/image/sources.ts'
import { makeTestFolders } from '../../host/test/support/vm.ts'
import { startVm } from '../../host/vm/vm.ts'
import { buildDisk } from '../../host/workspace/scan/disk.ts'
import { scanWorkspace } from '../../host/workspace/scan/scan.ts'
import type { ProbeReport, ProbeWork } from './agents/overlay-probe.ts'

const MIB = 1024 * 1024
let folder: string

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'caisson-change-set-'))
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

/** Boots a VM with the probe as its agent and `base` as its workspace; gives the report and the change stream. */
async function runProbe(base: string): Promise<{ report: ProbeReport; stream: Buffer[] }> {
  using home = makeTestFolders()
  const { recipe } = findSources()
  const root = await ensureRootImage({ cacheDir: home.folders.cache, recipe, arch: 'amd64' })
  const entry = resolve(import.meta.dirname, 'agents/overlay-probe.ts')
  const agent = await ensureAgentDisk({ cacheDir: folder, agent: { entry, watched: [] } })
  const scan = await scanWorkspace({ directory: base, ownFolders: [] })
  if (!scan.ok) throw new Error(scan.error.message)
  const workspaceDisk = join(mkdtempSync(join(folder, 'disk-')), 'workspace.erofs')
  const disk = await buildDisk({ scan: scan.value, file: workspaceDisk })
  if (!disk.ok) throw new Error(disk.error.message)
  await using vm = await startVm({
    image: {
      kernel: join(root.directory, 'vmlinuz'),
      initramfs: join(root.directory, 'initramfs'),
      root: join(root.directory, 'root.erofs'),
      agentDisk: agent.disk,
    },
    folders: home.folders,
    workspaceDisk,
  })
  const stream: Buffer[] = []
  let received = 0
  vm.http.on('data', (chunk: Buffer) => {
    stream.push(chunk)
    received += chunk.length
  })
  const report = await readReport(vm.rpc).catch((cause: unknown) => {
    throw new Error(`the probe did not report: ${vm.console.text()}`, { cause })
  })
  while (received < report.streamBytes) await new Promise((turn) => setTimeout(turn, 5))
  return { report, stream }
}

/** The first line of the control port. */
async function readReport(port: AsyncIterable<Buffer>): Promise<ProbeReport> {
  let text = ''
  for await (const chunk of port) {
    text += chunk.toString('utf8')
    if (text.endsWith('\n')) return JSON.parse(text) as ProbeReport
  }
  throw new Error('the control port ended')
}

async function* chunksOf(all: readonly Buffer[]): AsyncGenerator<Buffer> {
  yield* all
}

function makeBase(name: string, work: ProbeWork): string {
  const base = join(folder, name)
  mkdirSync(base)
  writeFileSync(join(base, 'work.json'), JSON.stringify(work))
  return base
}

/** What {@link ProbeWork} calls the traps: directories and files whose traces in an overlay mislead. */
function makeTraps(root: string): void {
  for (const directory of ['opaque', 'moved/deep', 'left/in', 'right/in', 'still/deep']) {
    mkdirSync(join(root, directory), { recursive: true })
  }
  for (const file of ['opaque/a', 'opaque/b', 'moved/deep/f', 'left/in/f', 'right/in/f', 'still/deep/f']) {
    writeFileSync(join(root, file), file.endsWith('/b') ? 'b' : file)
  }
  for (const file of ['touched', 'restored']) writeFileSync(join(root, file), file)
}

describe('the change set of a real overlay', () => {
  it('gives the merged tree when it is applied to the base, for any work and every trap [W.02]', async () => {
    const samples = fc.sample(operations, { numRuns: 120, seed: 11 })
    const cases = Object.fromEntries(samples.slice(0, 60).map((work, at) => [`case-${at}`, work]))
    const base = makeBase('overlay', { cases })
    for (const [at, name] of Object.keys(cases).entries()) {
      mkdirSync(join(base, name))
      perform(join(base, name), samples[60 + at] ?? [])
    }
    mkdirSync(join(base, 'traps'))
    makeTraps(join(base, 'traps'))
    const { report, stream } = await runProbe(base)
    expect(report.collected).toMatchObject({ ok: true })
    const copy = join(folder, 'copy')
    // Node's cpSync loses the modes of directories.
    execFileSync('cp', ['-a', base, copy])
    expect(await applyChanges(copy, chunksOf(stream))).toEqual([])
    expect(snapshot(copy)).toEqual(report.snapshot)
    const traps: string[] = []
    for await (const { entry } of decodeChanges(chunksOf(stream))) {
      if (entry.path.startsWith('traps/')) traps.push(`${entry.kind} ${entry.path.slice(6)}`)
    }
    // Three were written to and are unchanged: that is seen by the host, which has their digests.
    expect(traps).toEqual([
      'directory elsewhere',
      'directory elsewhere/deep',
      'file elsewhere/deep/f',
      'file left/in/f',
      'file linked',
      'file moved/deep',
      'deleted opaque/a',
      'file opaque/b',
      'file restored',
      'file right/in/f',
      'file touched',
    ])
  })

  it('collects 10,000 changed files and one of 128 MB [W.02]', async () => {
    const base = makeBase('many', { cases: {}, rewriteAll: true })
    for (let directory = 0; directory < 100; directory++) {
      mkdirSync(join(base, `d${directory}`))
      for (let at = 0; at < 100; at++)
        writeFileSync(join(base, `d${directory}/f${at}`), Buffer.alloc(1024, 'a'))
    }
    writeFileSync(join(base, 'large'), Buffer.alloc(128 * MIB, 'a'))
    const { report, stream } = await runProbe(base)
    console.log(JSON.stringify({ workMs: report.workMs, collectMs: report.collectMs }))
    expect(report.collected).toMatchObject({
      ok: true,
      value: { entries: 10_001, contentBytes: 10_000 * 1024 + 128 * MIB },
    })
    let found = 0
    for await (const { entry, content } of decodeChanges(chunksOf(stream))) {
      found++
      for await (const piece of content)
        expect(
          piece.every((byte) => byte === 0x62),
          entry.path,
        ).toBe(true)
    }
    expect(found).toBe(10_001)
  })
})
