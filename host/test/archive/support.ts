/** Runs to export, and archives of them, without a VM. */
import { mkdir, open, readdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { Readable, Writable } from 'node:stream'
import { zstdCompressSync, zstdDecompressSync } from 'node:zlib'
import { RunLimits, Task } from '#specs/protocol/task.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { encodeEnd, encodeEntry, encodePadding, TarReader } from '../../control/tar.ts'
import { Host } from '../../host.ts'
import { RunRecord } from '../../journal/run-record.ts'
import type { RunOptions } from '../../run-options.ts'
import { storeRun } from '../../stored-run.ts'
import { CheckpointDisk } from '../../vm/checkpoints/checkpoint-disk.ts'
import { changedRunId, placeOfRuns, runThatCopied } from '../support/changed-run.ts'

export const runId = changedRunId
const diskBytes = 2 * 1024 * 1024

/** A host with a state folder of its own, and a directory. Call it from within a test. */
export async function elsewhere(env: Readonly<Record<string, string>> = {}) {
  const home = await temporaryFolder('elsewhere')
  const directory = await temporaryFolder('workspace')
  const host = new Host({
    env: { HOME: home, CAISSON_HOME: path.join(home, 'state'), XDG_CONFIG_HOME: home, ...env },
  })
  return { host, directory, home }
}

const servers = {
  notes: { command: 'notes', args: ['--stdio'], env: { NOTES_TOKEN: 'tok-0123456789abcdef', LANG: 'C' } },
}

/** A run whose host process was killed after a checkpoint. Call it from within a test. */
export async function interruptedRun(more: Partial<RunOptions> = {}) {
  const place = await placeOfRuns({ 'a.txt': 'a\n', 'b.txt': 'b\n' })
  const { record } = await runThatCopied(place.host, place.directory, runId)
  await record[Symbol.asyncDispose]()
  await makeContinuable(place.host, place.directory, more)
  return { ...place, paths: place.host.runs.paths(runId) }
}

/** Adds what another process continues it with. */
async function makeContinuable(host: Host, directory: string, more: Partial<RunOptions>): Promise<void> {
  const paths = host.runs.paths(runId)
  const limits = RunLimits.parse({})
  const mcpServers = { notes: { transport: 'stdio' as const, ...servers.notes } }
  const task = Task.parse({ runId, prompt: 'p', model: 'm', limits, mcpServers })
  const options = {
    prompt: 'p',
    workspace: directory,
    model: 'm',
    extensions: { mcpServers: servers },
    ...more,
  }
  await storeRun(paths, options, task)
  await using record = await RunRecord.open(paths)
  const recorder = await record.openRecorder({ model: 'm', name: 'offline' })
  recorder.web(
    'call',
    { callId: 'c', tool: 't', arguments: '{}' },
    { ok: true, value: { ok: true, output: 'x' } },
  )
  await recorder.flush()
  const disk = await CheckpointDisk.create(paths.scratch)
  const { top } = await disk.prepare({ kind: 'blank', bytes: diskBytes })
  await using base = await open(path.join(paths.scratch, 'base.raw'), 'r+')
  await base.write(Buffer.from('ext4'), 0, 4, 1024 * 1024)
  await disk.write([{ file: path.basename(top), checkpoint: 'cp-1' }])
  await record.host({ type: 'checkpoint', checkpointId: 'cp-1', durationMs: 1, elapsedMs: 1, exchanges: 1 })
}

/** The archive of a run. */
export async function exported(host: Host, name: string = runId, notes: string[] = []): Promise<Buffer> {
  const pieces: Buffer[] = []
  const to = new Writable({
    write: (piece: Buffer, _, done) => {
      pieces.push(Buffer.from(piece))
      done()
    },
  })
  await host.exportRun(name, to, { onNote: (text) => notes.push(text) })
  return Buffer.concat(pieces)
}

export async function imported(host: Host, archive: Buffer, workspace: string) {
  return await host.importRun(Readable.from([archive]), { workspace })
}

export const unzipped = (archive: Buffer): Buffer => zstdDecompressSync(archive)
export const zipped = (tar: Buffer): Buffer => zstdCompressSync(tar)

/** The members of a tar. */
export async function membersOf(tar: Buffer): Promise<Map<string, Buffer>> {
  const reader = new TarReader(Readable.from([tar]))
  const members = new Map<string, Buffer>()
  for (let entry = await reader.next(); entry !== null; entry = await reader.next()) {
    const pieces: Buffer[] = []
    for await (const piece of reader.content()) pieces.push(Buffer.from(piece))
    members.set(entry.path, Buffer.concat(pieces))
  }
  return members
}

export function tarOf(members: Iterable<readonly [string, Buffer]>, type: 'file' | 'link' = 'file'): Buffer {
  const pieces: Buffer[] = []
  for (const [name, content] of members) {
    const link = type === 'link' && name !== 'manifest.json'
    pieces.push(
      encodeEntry({
        path: name,
        type: link ? 'link' : 'file',
        mode: 0o600,
        mtimeMs: 0,
        size: link ? 0 : content.length,
        target: link ? '/etc/passwd' : '',
      }),
    )
    if (!link) pieces.push(content, encodePadding(content.length))
  }
  return Buffer.concat([...pieces, encodeEnd()])
}

/** What is in the folder of runs. */
export async function left(host: Host): Promise<string[]> {
  return (await readdir(host.folders.runs).catch(() => [])).sort()
}

export async function writeConfig(home: string, text: string): Promise<void> {
  await mkdir(path.join(home, 'caisson'), { recursive: true, mode: 0o700 })
  await writeFile(path.join(home, 'caisson/config.toml'), text, { mode: 0o600 })
}
