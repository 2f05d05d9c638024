/**
 * Messages from host to host that may be lost, as PostgreSQL's NOTIFY. Anybody who may connect to the database can listen on a
 * channel whose name is known. So each host has a channel whose name comes from the secret of the fleet.
 */
import * as z from 'zod'
import { Delta, HostDelta } from '#specs/protocol/event.ts'
import { AgentPath } from '#specs/protocol/text.ts'
import type { FleetDatabase } from './database.ts'
import type { FleetSecret } from './fleet-secret.ts'
import type { FleetNotices } from './notices.ts'

/** PostgreSQL takes less than 8000. */
export const messageMaxBytes = 7_900

const Name = z.string().min(1).max(200)

/** A delta, and the last event before it. */
export const SentDelta = z.strictObject({
  after: z.int().min(0),
  agentPath: AgentPath,
  delta: z.union([Delta, HostDelta]),
})
export type SentDelta = z.infer<typeof SentDelta>

export const HostMessage = z.discriminatedUnion('type', [
  /** The sender wants the deltas of a run for a while. */
  z.strictObject({
    type: z.literal('follow'),
    watchId: Name,
    runId: Name,
    hostId: Name,
    /** Number of the last event that the sender has. */
    seen: z.int().min(0),
  }),
  /** It wants no more of them. */
  z.strictObject({ type: z.literal('unfollow'), watchId: Name }),
  z.strictObject({ type: z.literal('deltas'), watchId: Name, items: z.array(SentDelta).max(1_000) }),
])
export type HostMessage = z.infer<typeof HostMessage>

export interface AddressedMessage {
  readonly to: string
  readonly message: HostMessage
}

export class HostMessages {
  readonly #database: FleetDatabase
  readonly #notices: FleetNotices
  readonly #secret: FleetSecret
  readonly #takers = new Set<(message: HostMessage) => void>()

  constructor(database: FleetDatabase, notices: FleetNotices, secret: FleetSecret) {
    this.#database = database
    this.#notices = notices
    this.#secret = secret
  }

  /** From now on this process gets the messages to a host. */
  async receiveAs(hostId: string): Promise<void> {
    await this.#notices.receive(await this.#channelOf(hostId), (payload) => {
      const message = readMessage(payload)
      if (message !== undefined) for (const take of this.#takers) take(message)
    })
  }

  /** @returns ends it */
  on(take: (message: HostMessage) => void): () => void {
    this.#takers.add(take)
    return () => void this.#takers.delete(take)
  }

  /** In this order, those that are short enough. A host that is gone gets none. */
  async send(messages: readonly AddressedMessage[]): Promise<void> {
    const channels: string[] = []
    const payloads: string[] = []
    for (const { to, message } of messages) {
      const payload = JSON.stringify(message)
      if (Buffer.byteLength(payload) > messageMaxBytes) continue
      channels.push(await this.#channelOf(to))
      payloads.push(payload)
    }
    if (payloads.length === 0) return
    // No flush of the log of the database: other commits with a notice would wait for it.
    await this.#database.query(
      `SELECT set_config('synchronous_commit', 'off', true),
              (SELECT count(pg_notify(channel, payload)::text)
                 FROM unnest($1::text[], $2::text[]) AS message (channel, payload))`,
      [channels, payloads],
    )
  }

  async #channelOf(hostId: string): Promise<string> {
    return `caisson_${(await this.#secret.hash('messages', hostId)).slice(0, 40)}`
  }
}

/** Undefined: it is none that this version knows. */
function readMessage(payload: string): HostMessage | undefined {
  try {
    return HostMessage.safeParse(JSON.parse(payload)).data
  } catch {
    return undefined
  }
}
