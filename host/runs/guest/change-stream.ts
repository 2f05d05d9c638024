/**
 * The stream on which a guest sends its change set: taken when it was asked for, refused otherwise, and kept with the run
 * once it is whole.
 */

import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2'
import { CaissonError } from '#specs/errors.ts'
import type { Result } from '#specs/protocol/error.ts'
import { gatewayAuthority } from '../../gateway/gateway.ts'
import type { ChangeSet } from '../../workspace/change-set.ts'
import { type ReceiveOptions, receiveChanges } from '../../workspace/receive/receive.ts'

/** Of one change set: the first, and those after sessions that ended. */
const streamsMaxCount = 8

export type ReceivedChanges = Result<ChangeSet, { code: string; message: string }>

/** A change set that is expected until this is disposed. */
export interface ExpectedChanges extends Disposable {
  /** What became of the last stream; waits for the first. */
  received(): Promise<ReceivedChanges>
}

export class ChangeStream {
  readonly #path: string
  #take: ((stream: ServerHttp2Stream) => void) | null = null

  constructor(runId: string) {
    this.#path = `/changes/${runId}`
  }

  /** Takes a stream of the guest if it is of this kind; false leaves it to others. */
  handleStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): boolean {
    // The name keeps out what programs of the guest ask of other servers.
    if (headers[':authority'] !== gatewayAuthority || headers[':path'] !== this.#path) return false
    if (headers[':method'] === 'POST' && this.#take !== null) this.#take(stream)
    else stream.respond({ ':status': 409 }, { endStream: true })
    return true
  }

  /**
   * From here a stream is the change set. A session that ends in its midst cuts it short, and the guest sends it again in
   * the next: the last stream counts. None does any more once `signal` aborts.
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
      // One after the other: they are written to the same files.
      last = Promise.resolve(before).then(() => receive(source, options))
      first.resolve()
    }
    const ofLast = async (): Promise<ReceivedChanges> => {
      await first.promise
      return await (last as Promise<ReceivedChanges>)
    }
    this.#take = take
    const { signal } = options
    const giveUp = () => late.reject(new CaissonError('agent_lost', 'the changes did not come home in time'))
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
