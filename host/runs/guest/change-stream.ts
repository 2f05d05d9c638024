/**
 * Receives the stream with the guest's change set. Accepts it only when requested, and stores it with the run when
 * complete.
 */
import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2'
import { setTimeout as sleep } from 'node:timers/promises'
import { CaissonError } from '#specs/errors.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { workspaceCollect } from '#specs/protocol/methods.ts'
import type { RpcFailure } from '#specs/protocol/peer.ts'
import type { DiskSpaceNeed } from '../../files/disk-space.ts'
import { gatewayAuthority } from '../../gateway/gateway.ts'
import type { AgentLink } from '../../guest/agent-link.ts'
import type { ChangeSet } from '../../workspace/change-set.ts'
import { keepBases, type Manifest, outlineChanges, type ReadBefore } from '../../workspace/index.ts'
import { type ReceiveOptions, receiveChanges } from '../../workspace/receive/receive.ts'
import { Deadline } from '../deadline.ts'
import type { DiskSpaceWait } from '../disk-space-wait.ts'
import { requireValue } from '../prepare.ts'

/** Streams per change set: the first, and repetitions after a lost session. */
const streamsMaxCount = 8

type ReceivedChanges = Result<ChangeSet, { code: string; message: string }>

/** A requested change set; disposing it stops accepting streams. */
interface ExpectedChanges extends Disposable {
  /** Result of the last stream; waits for the first. */
  received(): Promise<ReceivedChanges>
}

export class ChangeStream {
  readonly #path: string
  #take: ((stream: ServerHttp2Stream) => void) | null = null

  constructor(runId: string) {
    this.#path = `/changes/${runId}`
  }

  /** Handles a stream if it carries a change set; returns false for other streams. */
  handleStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): boolean {
    // The authority separates it from requests of guest programs to other servers.
    if (headers[':authority'] !== gatewayAuthority || headers[':path'] !== this.#path) return false
    if (headers[':method'] === 'POST' && this.#take !== null) this.#take(stream)
    else stream.respond({ ':status': 409 }, { endStream: true })
    return true
  }

  /**
   * Accepts change-set streams from now on, until `signal` aborts. A lost session cuts a stream short and the guest
   * sends it again in the next session: the last stream counts.
   */
  expect(options: Omit<ReceiveOptions, 'source'> & { readonly signal: AbortSignal }): ExpectedChanges {
    const first = Promise.withResolvers<void>()
    const late = Promise.withResolvers<never>()
    late.promise.catch(() => undefined)
    let last: Promise<ReceivedChanges> | undefined
    let taken = 0
    const take = (source: ServerHttp2Stream): void => {
      if (++taken > streamsMaxCount) {
        source.respond({ ':status': 409 }, { endStream: true })
        return
      }
      const before = last
      // One at a time: streams write to the same files.
      last = Promise.resolve(before).then(() => receive(source, options))
      first.resolve()
    }
    const ofLast = async (): Promise<ReceivedChanges> => {
      await first.promise
      return await (last as Promise<ReceivedChanges>)
    }
    this.#take = take
    const { signal } = options
    const giveUp = () => late.reject(new CaissonError('agent_lost', 'collecting the changes timed out'))
    signal.addEventListener('abort', giveUp, { once: true })
    return {
      received: () => Promise.race([ofLast(), late.promise]),
      [Symbol.dispose]: () => {
        signal.removeEventListener('abort', giveUp)
        if (this.#take === take) this.#take = null
      },
    }
  }
}

async function receive(
  stream: ServerHttp2Stream,
  options: Omit<ReceiveOptions, 'source'>,
): Promise<ReceivedChanges> {
  const received = await receiveChanges({ source: stream as AsyncIterable<Uint8Array>, ...options })
  if (!stream.destroyed && !stream.headersSent)
    stream.respond({ ':status': received.ok ? 204 : 400 }, { endStream: true })
  return received
}

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
  /** Waits while the disk is full. Absent: a full disk is a failure. */
  readonly diskSpace?: Pick<DiskSpaceWait, 'wait'>
  /** Bytes to leave free on the disk. Absent: the receiver's default. */
  readonly spareBytes?: number
  /** Called with each entry that has arrived: entries and bytes of contents until now. */
  onProgress?(entries: number, contentBytes: number): void
}

type CollectFailure =
  | { readonly of: 'guest'; readonly failure: RpcFailure }
  | { readonly of: 'host'; readonly failure: Extract<ReceivedChanges, { ok: false }>['error'] }

export async function collectFrom(
  parts: CollectParts,
): Promise<
  { readonly ok: true; readonly value: ChangeSet } | { readonly ok: false; readonly error: CollectFailure }
> {
  const { runId, runDirectory, manifest, link, changes, diskSpace, spareBytes, onProgress } = parts
  const over = new AbortController()
  const { signal } = over
  using deadline = new Deadline(collectTimeoutMs, () => over.abort(new Error('it took too long')))
  const waitForDiskSpace = async (need: DiskSpaceNeed): Promise<void> => {
    deadline.hold(1, 'disk')
    await diskSpace?.wait(need).finally(() => deadline.hold(-1, 'disk'))
  }
  const bounds = spareBytes === undefined ? {} : { spareBytes }
  const waits = diskSpace === undefined ? {} : { waitForDiskSpace }
  const progress = onProgress === undefined ? {} : { onProgress }
  using expected = changes.expect({ manifest, runDirectory, signal, ...waits, ...bounds, ...progress })
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

/** Stores what a merge needs beside a received change set; returns the event that says what the changes are. */
export async function keepChanges(
  changes: ChangeSet,
  { readBefore, manifest, runDirectory }: KeptWith,
): Promise<Extract<HostEvent, { type: 'changes-ready' }>> {
  // Only a merge needs them: a full disk is no reason to lose the changes.
  await keepBases({ readBefore, manifest, changes, runDirectory }).catch(() => undefined)
  const outline = requireValue(await outlineChanges(manifest, changes))
  const { entries, contentBytes, sha256 } = changes
  return { type: 'changes-ready', entries: entries.size, contentBytes, ...outline, sha256 }
}

interface KeptWith {
  readonly readBefore: ReadBefore
  readonly manifest: Manifest
  readonly runDirectory: string
}
