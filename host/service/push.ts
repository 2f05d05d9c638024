/**
 * Browsers that hear of questions (Web Push), and whose they are. The file is of the service; a subscription that its push
 * service no longer knows, or whose key may not answer, is removed.
 */
import { createHash } from 'node:crypto'
import { open, rename } from 'node:fs/promises'
import path from 'node:path'
import * as z from 'zod'
import { errorMessage } from '#specs/errors.ts'
import { errnoOf } from '#specs/node/file-error.ts'
import { PushRequest } from '#specs/service/approval-resources.ts'
import type { ApiKeys, Messenger, PushSender, RunApproval } from '../index.ts'
import type { Caller } from './callers.ts'
import type { Links } from './links.ts'
import type { Receiver } from './notices.ts'
import { readToken, replaceFile } from './place.ts'
import { Refusal } from './problems.ts'
import { noticeOf } from './question-notice.ts'

const perCallerMax = 20
const subscriptionsMax = 500
const fileMaxBytes = 4 * 1024 * 1024
/** A JWT ends, and nobody can ask whether its subject may still answer; the page renews this. */
const subjectMs = 24 * 3_600_000
const textMaxChars = 160

const Subscription = PushRequest.extend({
  /** Name of the key or subject. Null: the owner of the service. */
  owner: z.string().max(1_000).nullable(),
  /** ms since 1970 */
  addedAt: z.number(),
})
type Subscription = z.infer<typeof Subscription>
const File = z.strictObject({ subscriptions: z.array(Subscription).max(subscriptionsMax) })

export interface PushOptions {
  readonly directory: string
  readonly messenger: Pick<Messenger, 'openPush'>
  readonly keys: Pick<ApiKeys, 'list'>
  /** Where the service can be reached by those who run push services. */
  readonly contact: string
  readonly links: Links | undefined
  readonly log: (line: Readonly<Record<string, unknown>>) => void
}

export class Push {
  readonly #options: PushOptions
  readonly #sender: PushSender
  readonly #file: string
  #subscriptions: readonly Subscription[]
  #saving: Promise<void> = Promise.resolve()

  private constructor(
    options: PushOptions,
    sender: PushSender,
    file: string,
    known: readonly Subscription[],
  ) {
    this.#options = options
    this.#sender = sender
    this.#file = file
    this.#subscriptions = known
  }

  /** @throws {CaissonError} `state_unavailable` for a key that others can read */
  static async open(options: PushOptions): Promise<Push> {
    const { directory, messenger, contact, log } = options
    const { token } = await readToken(directory, 'push-key')
    const file = path.join(directory, 'push.json')
    const sender = messenger.openPush(token, contact)
    try {
      return new Push(options, sender, file, await readSubscriptions(file))
    } catch (error) {
      await rename(file, `${file}.damaged`)
      log({ level: 'warn', message: 'the browsers to notify were damaged', cause: errorMessage(error) })
      return new Push(options, sender, file, [])
    }
  }

  /** For browsers that subscribe. */
  get publicKey(): string {
    return this.#sender.publicKey
  }

  /**
   * Adds a browser of the caller, or renews it. Beyond the bounds the oldest is removed.
   * @returns its id. @throws {Refusal} 400 for an endpoint that no message can go to
   */
  async add(caller: Caller, { endpoint, keys }: PushRequest): Promise<string> {
    const reason = this.#sender.refuse(endpoint)
    if (reason !== null)
      throw new Refusal(400, 'invalid_request', `the body does not fit: endpoint: ${reason}`, {
        errors: [{ field: 'endpoint', message: reason }],
      })
    const owner = ownerOf(caller)
    const others = this.#subscriptions.filter((other) => other.endpoint !== endpoint)
    const mine = others.filter((other) => other.owner === owner).slice(1 - perCallerMax)
    const kept = others.filter((other) => other.owner !== owner || mine.includes(other))
    await this.#save([...kept.slice(1 - subscriptionsMax), { endpoint, keys, owner, addedAt: Date.now() }])
    return digestOf(endpoint)
  }

  /** @throws {Refusal} 404 for a browser that is not of the caller */
  async remove(caller: Caller, id: string): Promise<void> {
    const owner = ownerOf(caller)
    const kept = this.#subscriptions.filter(
      (other) => other.owner !== owner || digestOf(other.endpoint) !== id,
    )
    if (kept.length === this.#subscriptions.length)
      throw new Refusal(404, 'not_found', `you have no browser ${id} that gets messages`, {
        remedy: 'it gets none, so there is nothing to do',
      })
    await this.#save(kept)
  }

  /** One for each browser whose person may answer. */
  async receivers(): Promise<readonly Receiver[]> {
    if (this.#subscriptions.length === 0) return []
    const rights = await this.#rights()
    const isAllowed = (subscription: Subscription) => rights(subscription) !== null
    if (!this.#subscriptions.every(isAllowed)) await this.#save(this.#subscriptions.filter(isAllowed))
    return this.#subscriptions.map((subscription) => {
      const id = `browser ${digestOf(subscription.endpoint)}`
      const seesAll = rights(subscription) === 'all'
      return {
        ...{ kind: 'browser', id },
        ...(seesAll || subscription.owner === null ? {} : { owner: subscription.owner }),
        send: async (question, since, signal) => {
          const message = { topic: topicOf(question), payload: this.#payload(question, id, since) }
          return await this.#sender.send(subscription, message, signal)
        },
        drop: async () => await this.#save(this.#subscriptions.filter((other) => other !== subscription)),
      }
    })
  }

  /** Whether the person of a browser may answer in all runs or in their own; null for neither. */
  async #rights(): Promise<(subscription: Subscription) => 'all' | 'own' | null> {
    // Keys that cannot be read reject, and nobody is forgotten for that.
    const keys = await this.#options.keys.list()
    const now = Date.now()
    return ({ owner, addedAt }) => {
      if (owner === null) return 'all'
      if (owner.startsWith('jwt ')) return addedAt + subjectMs > now ? 'own' : null
      const key = keys.find(({ id, name }) => owner === `key ${name} (${id})`)
      if (key === undefined || (key.expiresAt ?? Number.POSITIVE_INFINITY) <= now) return null
      if (key.scopes.includes('admin')) return 'all'
      return key.scopes.includes('approve') ? 'own' : null
    }
  }

  #payload(question: RunApproval, receiver: string, since: number): string {
    const { title, text, runId } = noticeOf(question)
    const link = this.#options.links?.make(question, receiver, since).url
    return JSON.stringify({
      ...{ title, runId, tag: topicOf(question) },
      text: text.slice(0, textMaxChars).toWellFormed(),
      // The page of the same service: the address by which this browser knows it.
      ...(link === undefined ? {} : { link: new URL(link).hash }),
    })
  }

  async #save(subscriptions: readonly Subscription[]): Promise<void> {
    this.#subscriptions = subscriptions
    const content = JSON.stringify({ subscriptions })
    this.#saving = this.#saving.catch(() => undefined).then(() => replaceFile(this.#file, content))
    await this.#saving
  }
}

/** Null: the owner of the service. */
function ownerOf({ account, name }: Caller): string | null {
  return account === undefined ? null : name
}

/** Of a later message about the same question, which replaces an earlier one. */
function topicOf({ runId, approval: { approvalId } }: RunApproval): string {
  return digestOf(`${runId} ${approvalId}`)
}

function digestOf(text: string): string {
  return createHash('sha256').update(text).digest('base64url').slice(0, 24)
}

async function readSubscriptions(file: string): Promise<readonly Subscription[]> {
  try {
    await using handle = await open(file, 'r')
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(fileMaxBytes), 0, fileMaxBytes, 0)
    return File.parse(JSON.parse(buffer.toString('utf8', 0, bytesRead))).subscriptions
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return []
    throw error
  }
}
