/**
 * Takes the agent's place in a VM to test the change set on a real overlay: mounts the workspace, does the work that
 * the file `work.json` in it asks for, reports what the workspace holds then as one line on the control port, and
 * sends the change set as it is on the stream port.
 */
import {
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import type { Result } from '#specs/protocol/error.ts'
import { createPortOpener } from '../../../agent/link/port.ts'
import { type Operation, perform, type Snapshot, snapshot } from '../../../agent/test/support/trees.ts'
import { type CollectSummary, collectChanges, guestPaths } from '../../../agent/workspace/collect.ts'

/** What `work.json` holds. */
export interface ProbeWork {
  /** Work by the name of a directory at the top. */
  readonly cases: Readonly<Record<string, readonly Operation[]>>
  /** Rewrites every file with other bytes of the same size instead, and gives no snapshot. */
  readonly rewriteAll?: boolean
}

/** The line on the control port. */
export interface ProbeReport {
  readonly snapshot: Snapshot
  readonly collected: Result<CollectSummary>
  /** Bytes on the stream port. */
  readonly streamBytes: number
  readonly workMs: number
  readonly collectMs: number
}

/** What misleads in an overlay's upper directory, in the directory `traps`. */
export function performTraps(root: string): void {
  const at = (path: string): string => join(root, path)
  // Opaque: a directory that looks new.
  rmSync(at('opaque'), { recursive: true })
  mkdirSync(at('opaque'))
  writeFileSync(at('opaque/b'), 'b')
  // Redirected: empty in the upper directory, full in the merged one; and its old name taken again.
  renameSync(at('moved'), at('elsewhere'))
  mkdirSync(at('moved'))
  writeFileSync(at('moved/deep'), 'now a file')
  // Swapped: each is a base directory under the other's name.
  renameSync(at('left'), at('between'))
  renameSync(at('right'), at('left'))
  renameSync(at('between'), at('right'))
  // Copied up without a change: nothing to merge.
  utimesSync(at('touched'), 1, 1)
  linkSync(at('touched'), at('linked'))
  // Copied up and put back.
  writeFileSync(at('restored'), 'changed')
  writeFileSync(at('restored'), 'restored')
}

function rewriteAll(root: string): void {
  for (const entry of readdirSync(root, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || entry.name === 'work.json') continue
    const path = join(entry.parentPath, entry.name)
    const bytes = readFileSync(path)
    writeFileSync(path, bytes.fill(bytes[0] === 0x62 ? 0x63 : 0x62))
  }
}

async function mountWorkspace(): Promise<void> {
  const socket = connect(process.env.CAISSON_HELPER ?? '/run/caisson/helper.sock')
  const request = Buffer.from(`J${JSON.stringify({ op: 'workspace_mount', readOnly: false })}`)
  const length = Buffer.alloc(4)
  length.writeUInt32BE(request.length)
  socket.write(Buffer.concat([length, request]))
  const pieces: Buffer[] = []
  for await (const piece of socket) pieces.push(piece as Buffer)
  const answer = Buffer.concat(pieces).toString('utf8', 5)
  if (!answer.includes('"ok": true') && !answer.includes('"ok":true'))
    throw new Error(`no workspace: ${answer}`)
}

async function main(): Promise<void> {
  await mountWorkspace()
  const root = guestPaths.merged
  const work = JSON.parse(readFileSync(join(root, 'work.json'), 'utf8')) as ProbeWork
  const started = performance.now()
  for (const [name, operations] of Object.entries(work.cases)) perform(join(root, name), operations)
  if (work.rewriteAll) rewriteAll(root)
  else performTraps(join(root, 'traps'))
  const worked = performance.now()
  const stream = (await createPortOpener('caisson.http')()) as import('node:net').Socket
  const collected = await collectChanges(stream)
  await new Promise((resolve) => stream.write('', resolve))
  const report: ProbeReport = {
    snapshot: work.rewriteAll ? {} : snapshot(root),
    collected,
    streamBytes: stream.bytesWritten,
    workMs: Math.round(worked - started),
    collectMs: Math.round(performance.now() - worked),
  }
  const control = await createPortOpener('caisson.rpc')()
  control.write(`${JSON.stringify(report)}\n`)
}

/** What the bundle of this file does in the guest. */
export function startAgent(): void {
  void main()
  // The supervisor starts an agent again that ends.
  setInterval(() => undefined, 60_000)
}
