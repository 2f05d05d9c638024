/** Sends what people should know to the webhooks of the configuration, one attempt at a time. Its caller tries again. */
import { CaissonError, requireText } from '#specs/errors.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { WebhookEvent } from '#specs/service/webhook-resources.ts'
import type { Config } from '../config/schema.ts'
import type { KeySource } from '../keys/key-source.ts'
import type { Secret } from '../keys/secret.ts'
import type { Network } from '../net/network.ts'
import { type DesktopMessage, showOnDesktop } from './desktop.ts'
import { createPost, type Post, refuseUrl, type SendResult } from './post.ts'
import { encryptPush, type PushKeys, readVapidIdentity, type VapidIdentity, vapidHeader } from './web-push.ts'
import { readWebhookSecret, signWebhook } from './webhook-signature.ts'

/** A browser, as it subscribed. */
export interface PushTarget {
  readonly endpoint: string
  readonly keys: PushKeys
}

export interface PushMessage {
  /** A later message with the same one replaces this, up to 32 letters and digits. */
  readonly topic: string
  /** Up to 4,000 bytes. */
  readonly payload: string
}

/** Sends to browsers (Web Push). */
export interface PushSender {
  /** For browsers that subscribe, in base64url. */
  readonly publicKey: string
  /** Why no message can go to an endpoint; null unless its text alone shows that, such as an address of this machine. */
  refuse(endpoint: string): string | null
  /** Makes one attempt. What fails is a value. */
  send(to: PushTarget, message: PushMessage, signal: AbortSignal): Promise<SendResult>
}

/** What is said to a webhook. */
export interface WebhookMessage {
  /** The same for each attempt, so that a receiver can drop doubles. */
  readonly id: string
  /** JSON. */
  readonly body: string
}

/** A webhook of the configuration. */
export interface WebhookReceiver {
  readonly name: string
  /** What it hears of. */
  readonly events: readonly WebhookEvent[]
}

export interface Messenger {
  /** Time that a question waits before people hear of it, in ms. */
  readonly afterMs: number
  /** Time that a link to a question is valid, in ms. */
  readonly linkMs: number
  readonly webhooks: readonly WebhookReceiver[]
  /** Whether questions show on the desktop of the user. */
  readonly desktop: boolean
  /** Makes one attempt. What fails is a value. */
  showOnDesktop(message: DesktopMessage, signal: AbortSignal): Promise<SendResult>
  /** Makes one attempt. What fails is a value. @throws {CaissonError} `invalid_options` for a name that is not there */
  sendWebhook(name: string, message: WebhookMessage, signal: AbortSignal): Promise<SendResult>
  /** @param secret 32 random bytes in base64url @param contact an https or mailto address of who sends */
  openPush(secret: string, contact: string): PushSender
}

interface Surroundings {
  readonly network: Network
  /** Of one attempt. Absent: 15 s. */
  readonly timeoutMs?: number
  /** Fetches a secret, with each attempt. */
  resolveKey(source: KeySource): Promise<Result<Secret, string>>
}

type Settings = Config['notify']
type Webhook = Settings['webhooks'][string]

export const defaultAfterMs = 30_000
const usualEvents = ['question.waiting'] as const
/** For which a push service keeps a message of a browser that is off. */
const pushLifeSeconds = 24 * 3_600
const localPushSetting = 'notify.localPush = true'
const defaultLinkMs = 24 * 3_600_000

/** @throws {CaissonError} `invalid_config` for a webhook whose secret cannot be used */
export async function openMessenger(
  {
    afterMs = defaultAfterMs,
    linkMs = defaultLinkMs,
    localPush = false,
    desktop = false,
    webhooks,
  }: Settings,
  surroundings: Surroundings,
): Promise<Messenger> {
  const { network, timeoutMs } = surroundings
  const post = createPost(network, timeoutMs)
  // What is wrong shows before a question waits.
  for (const [name, webhook] of Object.entries(webhooks)) {
    const key = await keyOf(webhook, surroundings)
    if (!key.ok) throw new CaissonError('invalid_config', `notify.webhooks.${name}.secret: ${key.error}`)
  }
  return {
    ...{ afterMs, linkMs, desktop },
    showOnDesktop: (message, signal) => showOnDesktop(message, { signal }),
    webhooks: Object.entries(webhooks).map(([name, { events = usualEvents }]) => ({ name, events })),
    async sendWebhook(name, message, signal) {
      requireText('name', name)
      const webhook = Object.hasOwn(webhooks, name) ? webhooks[name] : undefined
      if (webhook === undefined) throw new CaissonError('invalid_options', 'no webhook has this name')
      return await sendTo(webhook, message, { post, signal, ...surroundings })
    },
    openPush(secret, contact) {
      requireText('secret', secret)
      const identity = readVapidIdentity(secret)
      return {
        publicKey: identity.publicKey,
        refuse: (endpoint) => {
          requireText('endpoint', endpoint)
          return refuseUrl({ url: endpoint, isLocalAllowed: localPush, localSetting: localPushSetting })
        },
        send: async (to, message, signal) =>
          await push(to, message, { post, signal, identity, contact, isLocalAllowed: localPush }),
      }
    },
  }
}

async function sendTo(
  webhook: Webhook,
  { id, body }: WebhookMessage,
  { post, signal, ...surroundings }: Surroundings & { readonly post: Post; readonly signal: AbortSignal },
): Promise<SendResult> {
  const key = await keyOf(webhook, surroundings)
  // Somebody may put it back.
  if (!key.ok) return { isSent: false, why: key.error, isRetryable: true, retryAfterMs: null, isGone: false }
  const headers = { 'content-type': 'application/json', ...signWebhook(key.value, id, Date.now(), body) }
  const isLocalAllowed = webhook.local === true
  return await post({ url: webhook.url, headers, body, isLocalAllowed, localSetting: 'local = true' }, signal)
}

async function keyOf(
  { secret }: Webhook,
  { resolveKey }: Pick<Surroundings, 'resolveKey'>,
): Promise<Result<Buffer, string>> {
  const resolved = await resolveKey(secret)
  return resolved.ok ? readWebhookSecret(resolved.value) : resolved
}

async function push(
  { endpoint, keys }: PushTarget,
  { topic, payload }: PushMessage,
  given: {
    readonly post: Post
    readonly signal: AbortSignal
    readonly identity: VapidIdentity
    readonly contact: string
    readonly isLocalAllowed: boolean
  },
): Promise<SendResult> {
  const { post, signal, identity, contact, isLocalAllowed } = given
  let body: Buffer
  try {
    body = encryptPush(Buffer.from(payload), keys)
  } catch {
    return { isSent: false, why: 'its keys are none', isRetryable: false, retryAfterMs: null, isGone: true }
  }
  const headers = {
    ...{ 'content-type': 'application/octet-stream', 'content-encoding': 'aes128gcm' },
    authorization: vapidHeader(endpoint, identity, contact, Date.now()),
    ...{ ttl: String(pushLifeSeconds), urgency: 'high', topic },
  }
  // 404: the browser unsubscribed (RFC 8030).
  const goneStatuses = [404, 410]
  const message = {
    ...{ url: endpoint, headers, body, isLocalAllowed, goneStatuses },
    localSetting: localPushSetting,
  }
  return await post(message, signal)
}
