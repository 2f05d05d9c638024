/**
 * Collects the changes of a sandbox. Each change set is stored as a run that had no task, so that review, apply, undo
 * and the commands for changes work on it, also after the sandbox has ended.
 */
import { closeSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { CaissonError } from '#specs/errors.ts'
import { comparePaths } from '#specs/node/path-text.ts'
import { noUsage, RunLimits } from '#specs/protocol/task.ts'
import type { AgentLink } from '../guest/agent-link.ts'
import type { Image } from '../image/image.ts'
import { RunRecord } from '../journal/run-record.ts'
import { newRunId, RunStore } from '../journal/run-store.ts'
import { RunChanges } from '../runs/changes.ts'
import { type ChangeStream, collectFrom, keepChanges } from '../runs/guest/change-stream.ts'
import { errorOf, keepManifest } from '../runs/prepare.ts'
import type { Folders } from '../state/folders.ts'
import { readWhole, type StoredFile } from '../workspace/change-set.ts'
import {
  type LoggedOperation,
  type Manifest,
  openContents,
  type ReadBefore,
  readAppliedCount,
  readChangeSet,
  readLoggedOperations,
  type WorkspaceError,
} from '../workspace/index.ts'

export interface CollectedSandbox {
  readonly vmId: string
  /** What went into the VM. */
  readonly manifest: Manifest
  /** Reads a file as it went into the VM. */
  readonly readBefore: ReadBefore
  readonly image: Pick<Image, 'key' | 'agentDigest'>
  readonly folders: Folders
  readonly link: Pick<AgentLink, 'request'>
  /** Ids of its earlier change sets, in order, as far as something was applied. */
  readonly applied: readonly string[]
}

/**
 * @param openStream accepts the guest's stream of this change set from now on
 * @throws {CaissonError} `no_space`, `agent_lost`, `not_possible_now` when files changed meanwhile, `protocol_violation`
 */
export async function collectSandbox(
  { vmId, manifest, readBefore, image, folders, link, applied }: CollectedSandbox,
  openStream: (runId: string) => ChangeStream,
): Promise<RunChanges> {
  const store = new RunStore(folders)
  const runId = newRunId()
  const startedAt = performance.now()
  const paths = await store.create(runId)
  const { directory } = paths
  try {
    await using record = await RunRecord.open(paths)
    await record.host({
      type: 'run-start',
      prompt: `(changes of the sandbox ${vmId})`,
      model: 'none',
      provider: 'none',
      directory: manifest.root,
      limits: RunLimits.parse({}),
      imageKey: image.key,
      agentDigest: image.agentDigest,
    })
    // The guest compares with what went in; the host's files also have what was applied since.
    const expected = applied.reduce(
      (before, earlier) => withApplied(before, readLoggedOperations(store.paths(earlier).directory)),
      manifest,
    )
    await record.host(await keepManifest(expected, directory))
    const parts = { runId, runDirectory: directory, manifest, link, changes: openStream(runId) }
    const collected = await collectFrom(parts)
    if (!collected.ok) throw failureOf(collected.error)
    const before = await readApplied(applied, store, (name, sha256) => {
      const entry = manifest.entries.get(name)
      return entry?.kind === 'file' && entry.sha256 === sha256 ? readBefore(name, sha256) : undefined
    })
    const kept = { readBefore: before, manifest: expected, runDirectory: directory }
    await record.host(await keepChanges(collected.value, kept))
    const ending = { outcome: 'completed', reason: 'completed', message: '', summary: '' } as const
    const durationMs = Math.round(performance.now() - startedAt)
    await record.host({ type: 'run-end', ...ending, usage: noUsage, durationMs })
  } catch (error) {
    await rm(directory, { recursive: true, force: true })
    throw error
  }
  return await RunChanges.open(runId, store, folders)
}

/**
 * Removes a change set unless something of it is applied, which its files are needed to undo. Returns whether it was
 * removed.
 */
export async function dropUnapplied(changes: RunChanges, folders: Folders): Promise<boolean> {
  const store = new RunStore(folders)
  const isUnapplied = readAppliedCount(store.paths(changes.runId).directory) === 0
  if (isUnapplied) await store.remove(changes.runId)
  return isUnapplied
}

/** The manifest of a directory in which these operations were done. Their paths count as changed: content is compared. */
function withApplied(manifest: Manifest, operations: readonly LoggedOperation[]): Manifest {
  const entries = new Map(manifest.entries)
  for (const { path, after, outcome } of operations) {
    if (outcome !== 'done') continue
    if (after.kind === 'absent' || after.kind === 'other') entries.delete(path)
    else {
      const mode = after.kind === 'link' ? 0o777 : after.mode
      entries.set(path, { path, mtimeNs: '0', ctimeNs: '0', inode: '0', ...after, mode })
    }
  }
  const sorted = [...entries].sort(([left], [right]) => comparePaths(left, right))
  const bytes = sorted.reduce((sum, [, entry]) => sum + (entry.kind === 'file' ? entry.size : 0), 0)
  return { ...manifest, entries: new Map(sorted), bytes }
}

/** Reads what was applied of earlier change sets, else what went into the VM. */
async function readApplied(
  applied: readonly string[],
  store: RunStore,
  readBefore: ReadBefore,
): Promise<ReadBefore> {
  const earlier = new Map<string, StoredFile & { readonly contents: string }>()
  for (const runId of applied) {
    const changes = await readChangeSet(store.paths(runId).directory)
    if (!changes.ok) continue
    const { entries, paths } = changes.value
    for (const entry of entries.values())
      if (entry.kind === 'file')
        earlier.set(`${entry.path}\0${entry.sha256}`, { ...entry, contents: paths.contents })
  }
  return (name, sha256) => {
    const found = earlier.get(`${name}\0${sha256}`)
    if (found === undefined) return readBefore(name, sha256)
    const fd = openContents(found.contents)
    try {
      return readWhole(fd, found.offset, found.size)
    } finally {
      closeSync(fd)
    }
  }
}

type Failure = Extract<Awaited<ReturnType<typeof collectFrom>>, { ok: false }>['error']

function failureOf({ of, failure }: Failure): CaissonError {
  if (of === 'host') return errorOf(failure as WorkspaceError)
  // The agent says so of a file that changed while it was sent.
  const code = failure.code === 'rejected' ? 'not_possible_now' : 'agent_lost'
  return new CaissonError(code, `collecting the changes of the sandbox: ${failure.message}`)
}
