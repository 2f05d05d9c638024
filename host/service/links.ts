/**
 * Signed links to one question: who has one may see the question and answer it once. It has a digest of the question, so
 * that it answers nothing else, and is used once the question is decided, by whom ever.
 */
import { createHash, createHmac, timingSafeEqual } from 'node:crypto'
import * as z from 'zod'
import { digestOfQuestion } from '#specs/node/question-digest.ts'
import { Id, RunId, Sha256 } from '#specs/protocol/text.ts'
import type { RouteName } from '#specs/service/routes.ts'
import type { RunApproval } from '../index.ts'
import type { Caller, LinkIdentity } from './callers.ts'
import { readToken } from './place.ts'
import { Refusal } from './problems.ts'

const prefix = 'caisson-link_'
const form = /^caisson-link_([A-Za-z0-9_-]{1,4000})\.([A-Za-z0-9_-]{43})$/
const keyName = 'link-key'
/** Of one link. */
const maxRequestsPerMinute = 60

const Payload = z.tuple([RunId, Id, Sha256, z.int().min(0), z.string().max(200)])

/** Routes that a link may call, for its own question. */
const linkRoutes: ReadonlySet<RouteName> = new Set(['getApproval', 'answerApproval'])

export class Links implements LinkIdentity {
  readonly #key: string
  readonly #origin: string
  readonly #lifetimeMs: number

  private constructor(key: string, origin: string, lifetimeMs: number) {
    this.#key = key
    this.#origin = origin
    this.#lifetimeMs = lifetimeMs
  }

  /**
   * @param directory of the service; the key is made there at the first start, and without it no earlier link is valid
   * @param origin by which people reach the service
   * @throws {CaissonError} `state_unavailable`
   */
  static async open(directory: string, origin: string, lifetimeMs: number): Promise<Links> {
    return new Links((await readToken(directory, keyName)).token, origin, lifetimeMs)
  }

  /** The same for each attempt. @param since when the delivery was first due, ms since 1970 */
  make(question: RunApproval, receiver: string, since: number): { readonly url: string; expiresAt: number } {
    const { runId, approval } = question
    const expiresAt = since + this.#lifetimeMs
    const payload: z.infer<typeof Payload> = [
      runId,
      approval.approvalId,
      digestOfQuestion(question),
      expiresAt,
      receiver,
    ]
    const signed = `${prefix}${Buffer.from(JSON.stringify(payload)).toString('base64url')}`
    return { url: `${this.#origin}/answer#${signed}.${this.#sign(signed)}`, expiresAt }
  }

  isToken(text: string): boolean {
    return text.startsWith(prefix)
  }

  /** Who has the link; null for a text that this service did not sign. @throws {Refusal} 410 when it has expired */
  identify(token: string, now: number): Caller | null {
    const [, encoded = '', mac = ''] = form.exec(token) ?? []
    if (!timingSafeEqual(digestOf(mac), digestOf(this.#sign(`${prefix}${encoded}`)))) return null
    const read = Payload.safeParse(JSON.parse(Buffer.from(encoded, 'base64url').toString('utf8')))
    if (!read.success) return null
    const [runId, approvalId, digest, expiresAt, receiver] = read.data
    if (expiresAt <= now)
      throw new Refusal(410, 'link_expired', `the link expired at ${new Date(expiresAt).toISOString()}`, {
        remedy: 'answer the question on the page or with `caisson approvals answer`',
      })
    const id = digestOf(token).toString('hex').slice(0, 12)
    return {
      name: `link of ${receiver} (${id})`,
      scopes: new Set(['approve']),
      account: {
        ...{ id: `link-${id}`, kind: 'link', quotas: { maxRequestsPerMinute } },
        isValid: async () => expiresAt > Date.now(),
      },
      link: { runId, approvalId, digest, expiresAt, receiver },
    }
  }

  #sign(text: string): string {
    return createHmac('sha256', this.#key).update(text).digest('base64url')
  }
}

/** A link is for its own question alone. @throws {Refusal} 403 */
export function requireLinked({ link }: Caller, route: RouteName, params: unknown): void {
  if (link === undefined) return
  const { run, approval } = (params ?? {}) as { run?: unknown; approval?: unknown }
  if (linkRoutes.has(route) && run === link.runId && approval === link.approvalId) return
  throw new Refusal(403, 'forbidden', 'the link is for one question, and the request is about something else')
}

/** @param question as it waits now @throws {Refusal} 409 where it is another one than the link shows */
export function requireUnchanged({ link }: Caller, question: RunApproval): void {
  if (link === undefined || link.digest === digestOfQuestion(question)) return
  throw new Refusal(409, 'question_changed', 'the question has changed since the link was sent', {
    remedy: 'read and answer it on the page of the service',
  })
}

/** All texts have a digest of one length, so that a comparison tells nothing of theirs. */
function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
