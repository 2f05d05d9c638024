/**
 * Collects the changes of a sandbox. Each change set is stored as a run that had no task, so that review, apply, undo
 * and the commands for changes work on it, also after the sandbox has ended.
 */
import { rm } from 'node:fs/promises'
import { CaissonError } from '#specs/errors.ts'
import { noUsage, RunLimits } from '#specs/protocol/task.ts'
import type { AgentLink } from '../guest/agent-link.ts'
import type { Image } from '../image/image.ts'
import { RunRecord } from '../journal/run-record.ts'
import { newRunId, RunStore } from '../journal/run-store.ts'
import { RunChanges } from '../runs/changes.ts'
import { type ChangeStream, collectFrom } from '../runs/guest/change-stream.ts'
import { errorOf, manifestFile, requireValue } from '../runs/prepare.ts'
import type { Folders } from '../state/folders.ts'
import {
  flaggedPaths,
  type Manifest,
  readAppliedCount,
  type WorkspaceError,
  writeManifest,
} from '../workspace/index.ts'

export interface CollectedSandbox {
  readonly vmId: string
  /** What went into the VM. */
  readonly manifest: Manifest
  readonly image: Pick<Image, 'key' | 'agentDigest'>
  readonly folders: Folders
  readonly link: Pick<AgentLink, 'request'>
}

/**
 * @param openStream accepts the guest's stream of this change set from now on
 * @throws {CaissonError} `no_space`, `agent_lost`, `not_possible_now` when files changed meanwhile, `protocol_violation`
 */
export async function collectSandbox(
  { vmId, manifest, image, folders, link }: CollectedSandbox,
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
    await record.host(await keepManifest(manifest, directory))
    const parts = { runId, runDirectory: directory, manifest, link, changes: openStream(runId) }
    const collected = await collectFrom(parts)
    if (!collected.ok) throw failureOf(collected.error)
    const { entries, contentBytes, sha256 } = collected.value
    const flagged = requireValue(await flaggedPaths(manifest, collected.value)).slice(0, 1_000)
    await record.host({ type: 'changes-ready', entries: entries.size, contentBytes, flagged, sha256 })
    const ending = { outcome: 'completed', reason: 'completed', message: '', summary: '' } as const
    const durationMs = Math.round(performance.now() - startedAt)
    await record.host({ type: 'run-end', ...ending, usage: noUsage, durationMs })
  } catch (error) {
    await rm(directory, { recursive: true, force: true })
    throw error
  }
  return await RunChanges.open(runId, store, folders)
}

/** Removes a change set unless something of it is applied, which its files are needed to undo. */
export async function dropUnapplied(changes: RunChanges, folders: Folders): Promise<void> {
  const store = new RunStore(folders)
  if (readAppliedCount(store.paths(changes.runId).directory) === 0) await store.remove(changes.runId)
}

async function keepManifest(manifest: Manifest, directory: string) {
  const files = [...manifest.entries.values()].filter(({ kind }) => kind === 'file')
  return {
    type: 'workspace-ready',
    files: files.length,
    bytes: files.reduce((sum, file) => sum + (file.kind === 'file' ? file.size : 0), 0),
    leftOut: manifest.leftOut.length,
    examples: manifest.leftOut.slice(0, 50),
    manifestSha256: await writeManifest(manifestFile(directory), manifest),
  } as const
}

type Failure = Extract<Awaited<ReturnType<typeof collectFrom>>, { ok: false }>['error']

function failureOf({ of, failure }: Failure): CaissonError {
  if (of === 'host') return errorOf(failure as WorkspaceError)
  // The agent says so of a file that changed while it was sent.
  const code = failure.code === 'rejected' ? 'not_possible_now' : 'agent_lost'
  return new CaissonError(code, `collecting the changes of the sandbox: ${failure.message}`)
}
