/** Collects the guest's change set. On failure it reports the host's own reason in preference to the guest's. */
import { setTimeout as sleep } from 'node:timers/promises'
import { workspaceCollect } from '#specs/protocol/methods.ts'
import type { RpcFailure } from '#specs/protocol/peer.ts'
import type { DiskSpaceNeed } from '../../files/disk-space.ts'
import type { AgentLink } from '../../guest/agent-link.ts'
import type { ChangeSet } from '../../workspace/change-set.ts'
import type { Manifest } from '../../workspace/index.ts'
import { Deadline } from '../deadline.ts'
import type { DiskSpaceWait } from '../disk-space-wait.ts'
import type { ChangeStream, ReceivedChanges } from './change-stream.ts'

/** Limit for the transfer of the whole change set, excluding waits for disk space. */
const collectTimeoutMs = 600_000
/** Wait for the receiver's own reason after the guest reported a failure. */
const reasonMs = 2_000

export interface CollectParts {
  readonly runId: string
  readonly runDirectory: string
  readonly manifest: Manifest
  readonly link: Pick<AgentLink, 'request'>
  readonly changes: ChangeStream
  readonly diskSpace: Pick<DiskSpaceWait, 'wait'>
  /** Bytes to leave free on the disk. Absent: the receiver's default. */
  readonly spareBytes?: number
}

export type CollectFailure =
  | { readonly of: 'guest'; readonly failure: RpcFailure }
  | { readonly of: 'host'; readonly failure: Extract<ReceivedChanges, { ok: false }>['error'] }

export async function collectFrom(
  parts: CollectParts,
): Promise<
  { readonly ok: true; readonly value: ChangeSet } | { readonly ok: false; readonly error: CollectFailure }
> {
  const { runId, runDirectory, manifest, link, changes, diskSpace, spareBytes } = parts
  const over = new AbortController()
  const { signal } = over
  using deadline = new Deadline(collectTimeoutMs, () => over.abort(new Error('it took too long')))
  const waitForDiskSpace = async (need: DiskSpaceNeed): Promise<void> => {
    deadline.hold(1)
    await diskSpace.wait(need).finally(() => deadline.hold(-1))
  }
  const bounds = spareBytes === undefined ? {} : { spareBytes }
  using expected = changes.expect({ manifest, runDirectory, signal, waitForDiskSpace, ...bounds })
  try {
    const answer = await link.request(workspaceCollect, { runId }, { signal })
    if (answer.ok) {
      const received = await expected.received()
      return received.ok ? received : { ok: false, error: { of: 'host', failure: received.error } }
    }
    const received = await Promise.race([expected.received(), sleep(reasonMs)])
    // The receiver's error only shows a truncated stream; the guest's error has the cause.
    if (received === undefined || received.ok || received.error.code === 'cut_short')
      return { ok: false, error: { of: 'guest', failure: answer.error } }
    return { ok: false, error: { of: 'host', failure: received.error } }
  } finally {
    over.abort(new Error('nobody waits for the changes any more'))
  }
}
