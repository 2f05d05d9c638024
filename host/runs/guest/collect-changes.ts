/** Brings the change set of a guest home, and says why where that fails: of two reasons the host's own counts. */
import { setTimeout as sleep } from 'node:timers/promises'
import { workspaceCollect } from '#specs/protocol/methods.ts'
import type { RpcFailure } from '#specs/protocol/peer.ts'
import type { RoomNeed } from '../../files/disk-space.ts'
import type { AgentLink } from '../../guest/agent-link.ts'
import type { ChangeSet } from '../../workspace/change-set.ts'
import type { Manifest } from '../../workspace/index.ts'
import { Deadline } from '../deadline.ts'
import type { RoomKeeper } from '../disk-space-wait.ts'
import type { ChangeStream, ReceivedChanges } from './change-stream.ts'

/** Time for the whole change set to come home, without waits for room on the disk. */
const collectTimeoutMs = 600_000
/** For the receiver's own reason, once the guest said that it could not send. */
const reasonMs = 2_000

export interface CollectParts {
  readonly runId: string
  readonly runDirectory: string
  readonly manifest: Manifest
  readonly link: Pick<AgentLink, 'request'>
  readonly changes: ChangeStream
  readonly room: Pick<RoomKeeper, 'wait'>
  /** Bytes left free on the disk; absent: as the receiver sees fit. */
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
  const { runId, runDirectory, manifest, link, changes, room, spareBytes } = parts
  const over = new AbortController()
  const { signal } = over
  using deadline = new Deadline(collectTimeoutMs, () => over.abort(new Error('it took too long')))
  const waitForRoom = async (need: RoomNeed): Promise<void> => {
    deadline.hold(1)
    await room.wait(need).finally(() => deadline.hold(-1))
  }
  const bounds = spareBytes === undefined ? {} : { spareBytes }
  using expected = changes.expect({ manifest, runDirectory, signal, waitForRoom, ...bounds })
  try {
    const told = await link.request(workspaceCollect, { runId }, { signal })
    if (told.ok) {
      const received = await expected.received()
      return received.ok ? received : { ok: false, error: { of: 'host', failure: received.error } }
    }
    const received = await Promise.race([expected.received(), sleep(reasonMs)])
    // A stream that was cut short says less than whoever cut it.
    if (received === undefined || received.ok || received.error.code === 'cut_short')
      return { ok: false, error: { of: 'guest', failure: told.error } }
    return { ok: false, error: { of: 'host', failure: received.error } }
  } finally {
    over.abort(new Error('nobody waits for the changes any more'))
  }
}
