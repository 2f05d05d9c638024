// A program of the tests, in a mount namespace of its own: what is written to a real file system without room.
// usage: on-full-disk.ts FOLDER changes|journal|recording waits|refuses; prints JSON
import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync, rmSync, statfsSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { encodeChanges } from '#specs/node/change-encoder.ts'
import { Journal, readJournal } from '../../journal/journal.ts'
import { Recorder } from '../../recording/recorder.ts'
import { receiveChanges } from '../../workspace/receive/receive.ts'

const KIB = 1024
const MIB = 1024 * KIB
const [, , folder = '', what = '', waits] = process.argv
execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=8m', 'none', folder])
const filler = path.join(folder, 'filler')

let asked = 0
const makeRoom = async (): Promise<void> => {
  asked += 1
  rmSync(filler, { force: true })
}
const waitForDiskSpace = waits === 'waits' ? { waitForDiskSpace: makeRoom } : {}
const runId = `run-${'0'.repeat(20)}`

function fill(leftBytes: number): void {
  const { bavail, bsize } = statfsSync(folder)
  writeFileSync(filler, Buffer.alloc(bavail * bsize - leftBytes))
}

async function receive(): Promise<object> {
  fill(2 * MIB)
  const content = Buffer.alloc(5 * MIB, 'c')
  const changes = [
    { entry: { kind: 'file', path: 'big', mode: 0o644, size: content.length } as const, content },
    ...Array.from({ length: 500 }, (_, at) => ({
      entry: { kind: 'link', path: `link-${String(at).padStart(4, '0')}`, target: 'big' } as const,
    })),
  ]
  const received = await receiveChanges({
    source: encodeChanges(changes),
    manifest: { root: '/w', device: '0', inode: '0', entries: new Map(), leftOut: [], bytes: 0 },
    runDirectory: folder,
    // The disk itself is to say when it is full.
    spareBytes: -64 * MIB,
    ...waitForDiskSpace,
  })
  if (!received.ok) return { code: received.error.code }
  return { entries: received.value.entries.size, bytes: received.value.contentBytes }
}

/** Lines of 10 KiB where 64 fit. */
async function journal(): Promise<object> {
  const file = path.join(folder, 'journal.jsonl')
  const journal = await Journal.open({ runId, path: file, locks: path.dirname(file) })
  if (waits === 'waits') journal.waitForDiskSpace = makeRoom
  fill(64 * KIB)
  const append = async (at: number): Promise<string> => {
    const event = { type: 'note', level: 'info', text: `${at} ${'x'.repeat(1_900)}` } as const
    return await journal.append({ source: 'agent', agentPath: 'root', n: at, event }).then(
      () => 'written',
      (error: { code?: string }) => error.code ?? 'failed',
    )
  }
  const said = await Promise.all(Array.from({ length: 100 }, (_, at) => append(at + 1)))
  rmSync(filler, { force: true })
  const later = await append(101)
  await journal.close()
  const events = await readJournal(file, runId)
  const numbers = events.flatMap((event) => (event.source === 'agent' ? [event.n] : []))
  const expected = [...said, later].flatMap((word, at) => (word === 'written' ? [at + 1] : []))
  const isWhole = JSON.stringify(numbers) === JSON.stringify(expected)
  return { said: [...new Set(said)].sort(), later, isWhole }
}

async function record(): Promise<object> {
  const file = path.join(folder, 'exchanges.jsonl')
  const header = { version: 1, runId, model: 'm', provider: 'p', at: 0 } as const
  const recorder = await Recorder.open(file, header, waitForDiskSpace)
  fill(64 * KIB)
  for (let at = 0; at < 100; at += 1) recorder.web('search', { at }, { ok: true, value: 'x'.repeat(2_000) })
  await recorder[Symbol.asyncDispose]()
  const lines = readFileSync(file, 'utf8').split('\n').slice(0, -1)
  for (const line of lines) JSON.parse(line)
  return { isWhole: lines.length === 101, isCut: lines.length < 101 && lines.length > 1 }
}

const cases: Readonly<Record<string, () => Promise<object>>> = {
  changes: receive,
  journal,
  recording: record,
}
const result = await cases[what]?.()
process.stdout.write(JSON.stringify({ ...result, asked, left: readdirSync(folder).sort() }))
