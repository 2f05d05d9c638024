/**
 * Signed requests to an S3-compatible store (https://docs.aws.amazon.com/AmazonS3/latest/API/), tried again where that helps.
 * An error says what was being done, what the server said and what to do, and holds no key.
 */
import { createHash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { AwsV4Signer } from 'aws4fetch'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import type { S3Keys, S3Settings } from './s3-settings.ts'

export interface S3Request {
  /** For errors: "storing a file". */
  readonly phase: string
  readonly method: 'GET' | 'HEAD' | 'PUT' | 'POST' | 'DELETE'
  /** Without the prefix. */
  readonly name: string
  readonly query?: Readonly<Record<string, string>>
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: Uint8Array<ArrayBuffer>
  /** Digest of the body, which the server checks. Absent: it is taken here. */
  readonly sha256?: string
  /** Answers that are no failure beside those of 200 to 299. */
  readonly expected?: readonly number[]
}

export interface S3Patience {
  /** How often a request is sent before its failure counts. */
  readonly tries: number
  /** Before the second try, ms; then twice as long each time. */
  readonly firstMs: number
  readonly mostMs: number
  /** A connection that says nothing for so long is given up, ms. */
  readonly idleMs: number
}

export const defaultPatience: S3Patience = { tries: 6, firstMs: 200, mostMs: 10_000, idleMs: 60_000 }

/** What the server said in the body of an error. */
interface Said {
  readonly status: number
  readonly code: string
  readonly message: string
  readonly region: string
  /** ms by which the clock of this host is ahead; NaN: not known. */
  readonly clockAheadMs: number
  /** ms that the server asks to wait. */
  readonly retryAfterMs: number
}

const busyStatus = [408, 429, 500, 502, 503, 504]
const busyCodes = ['SlowDown', 'RequestTimeout', 'InternalError', 'ServiceUnavailable', 'OperationAborted']
const shownBytes = 16 * 1024
const emptySha256 = createHash('sha256').digest('hex')

export class S3Requests {
  readonly settings: S3Settings
  readonly patience: S3Patience
  #keys: Promise<S3Keys> | undefined

  constructor(settings: S3Settings, patience: S3Patience) {
    this.settings = settings
    this.patience = patience
  }

  /** The caller reads or cancels the body. @throws {CaissonError} what {@link explain} says */
  async send(request: S3Request): Promise<Response> {
    let isRenewed = false
    for (let tried = 1; ; tried += 1) {
      const answer = await this.#sendOnce(request)
      if (answer instanceof Response) {
        if (answer.ok || request.expected?.includes(answer.status) === true) return answer
        const said = await readError(answer)
        const isExpired = ['ExpiredToken', 'ExpiredTokenException', 'TokenRefreshRequired'].includes(
          said.code,
        )
        if (isExpired && !isRenewed) {
          isRenewed = true
          this.#keys = undefined
          continue
        }
        const isBusy = busyStatus.includes(said.status) || busyCodes.includes(said.code)
        if (!isBusy) throw await this.#explain(request, said)
        if (tried >= this.patience.tries) throw this.gaveUp(request.phase, `${describe(said)}`, tried)
        await this.pause(tried, said.retryAfterMs)
        continue
      }
      if (tried >= this.patience.tries)
        throw this.gaveUp(request.phase, await this.#clean(answer.reason), tried)
      await this.pause(tried)
    }
  }

  /** Before the next try; with a part by chance, so that many hosts do not come back at once. */
  async pause(tried: number, askedMs = 0): Promise<void> {
    const { firstMs, mostMs } = this.patience
    const most = Math.min(mostMs, firstMs * 2 ** (tried - 1))
    await sleep(Math.max(Math.min(askedMs, mostMs), most * (0.5 + Math.random() / 2)))
  }

  /** The store did not answer: it may later. */
  gaveUp(phase: string, seen: string, tried: number): CaissonError {
    const text = `${phase} in ${this.settings.shown} failed ${tried} times: ${seen}; expected an answer of the store`
    return new CaissonError('state_unavailable', text, {
      cause: new Error(seen),
      remedy: 'check the endpoint and the network, or wait until the store has less to do',
    })
  }

  /** @returns the answer, or why there is none */
  async #sendOnce(request: S3Request): Promise<Response | { readonly reason: string }> {
    const { method, name, query = {}, headers = {}, body, sha256 } = request
    const { base, prefix, region } = this.settings
    const url = new URL(`${base}${prefix}${name}`)
    for (const [key, value] of Object.entries(query)) url.searchParams.set(key, value)
    this.#keys ??= this.settings.keys()
    const { accessKeyId, secretAccessKey, sessionToken } = await this.#keys
    const digest =
      sha256 ?? (body === undefined ? emptySha256 : createHash('sha256').update(body).digest('hex'))
    const signer = new AwsV4Signer({
      ...{ method, url: url.href, service: 's3', region },
      headers: { ...headers, 'x-amz-content-sha256': digest },
      ...{ accessKeyId: accessKeyId.reveal(), secretAccessKey: secretAccessKey.reveal() },
      ...(sessionToken === undefined ? {} : { sessionToken: sessionToken.reveal() }),
    })
    const signed = await signer.sign()
    return await fetch(signed.url, {
      ...{ method, headers: signed.headers, redirect: 'manual' },
      ...(body === undefined ? {} : { body }),
      // Until the head of the answer is there; a body takes as long as it moves.
      signal: AbortSignal.timeout(this.patience.idleMs + Math.ceil((body?.byteLength ?? 0) / minBytesPerMs)),
    }).catch(notSent)
  }

  async #explain({ phase, method, name }: S3Request, said: Said): Promise<CaissonError> {
    // The answer to HEAD has no body, so it does not say why.
    if (method === 'HEAD' && said.code === '') return await this.#explainHead(phase, name, said)
    return explain(phase, this.settings, { ...said, message: await this.#clean(said.message) })
  }

  async #explainHead(phase: string, name: string, said: Said): Promise<CaissonError> {
    const asked = { phase, method: 'GET', name, headers: { range: 'bytes=0-0' } } as const
    const answer = await this.#sendOnce(asked)
    const known = answer instanceof Response && !answer.ok ? await readError(answer) : said
    if (answer instanceof Response && answer.ok) await answer.body?.cancel()
    return explain(phase, this.settings, { ...known, message: await this.#clean(known.message) })
  }

  /** A server may repeat what it was sent. */
  async #clean(text: string): Promise<string> {
    const keys = await this.#keys?.catch(() => undefined)
    const secrets = keys === undefined ? [] : Object.values(keys).map((secret) => secret.reveal())
    const left = secrets.reduce((rest, secret) => rest.replaceAll(secret, '[key]'), text)
    return left.replaceAll(/[^\x20-\x7e]+/g, ' ').slice(0, 300)
  }
}

/** A slower connection than 32 kB a second is taken for one that is cut. */
const minBytesPerMs = 32

/** Of a failure that no other try repairs. */
function explain(phase: string, settings: S3Settings, said: Said): CaissonError {
  const { bucket, region, shown, prefix } = settings
  const seen = describe(said)
  const failed = `${phase} in ${shown} failed`
  switch (said.code) {
    case 'SignatureDoesNotMatch':
    case 'InvalidAccessKeyId':
      return new CaissonError(
        'permission_denied',
        `${failed}: expected a key that the store knows; ${seen}`,
        {
          remedy: 'check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile of AWS_PROFILE',
        },
      )
    case 'ExpiredToken':
    case 'ExpiredTokenException':
    case 'TokenRefreshRequired':
      return new CaissonError('permission_denied', `${failed}: expected keys that are valid now; ${seen}`, {
        remedy: 'renew the session token in the profile file',
      })
    case 'RequestTimeTooSkewed':
      return new CaissonError(
        'state_unavailable',
        `${failed}: expected a clock like the store's; this host's differs by ${secondsOf(said.clockAheadMs)}`,
        { remedy: 'set the clock of this host, for instance with NTP' },
      )
    case 'NoSuchBucket':
      return new CaissonError(
        'invalid_options',
        `${failed}: expected the bucket ${bucket}, which is not there`,
        {
          remedy: 'create the bucket, or correct the address and AWS_ENDPOINT_URL',
        },
      )
  }
  const isOtherRegion = said.code === 'AuthorizationHeaderMalformed' || [301, 307].includes(said.status)
  if (isOtherRegion)
    return new CaissonError('invalid_options', `${failed}: expected the bucket in ${region}; ${seen}`, {
      remedy: said.region === '' ? 'set AWS_REGION to its region' : `set AWS_REGION=${said.region}`,
    })
  if (said.status === 401 || said.status === 403)
    return new CaissonError('permission_denied', `${failed}: expected the right to do it; ${seen}`, {
      remedy: `allow the key s3:GetObject, s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload on ${bucket}/${prefix}*, and s3:ListBucket on ${bucket}`,
    })
  return new CaissonError('state_unavailable', `${failed}: expected an answer of S3; ${seen}`, {
    remedy: 'check that AWS_ENDPOINT_URL is the address of an S3-compatible store',
  })
}

function describe({ status, code, message }: Said): string {
  const words = [code, message].filter((word) => word !== '').join(': ')
  return `the store answered HTTP ${status}${words === '' ? '' : ` (${words})`}`
}

function secondsOf(ms: number): string {
  return Number.isFinite(ms) ? `${Math.round(Math.abs(ms) / 1_000)} s` : 'too much'
}

function notSent(error: unknown): { readonly reason: string } {
  // The message of fetch is "fetch failed"; its cause says why.
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
  const code = cause instanceof Error && 'code' in cause ? `${String(cause.code)}: ` : ''
  return { reason: `${code}${errorMessage(cause)}` }
}

async function readError(answer: Response): Promise<Said> {
  const text = await textOf(answer, shownBytes)
  const tag = (name: string) => new RegExp(`<${name}>([^<]*)</${name}>`).exec(text)?.[1]?.trim() ?? ''
  const date = Date.parse(answer.headers.get('date') ?? '')
  return {
    ...{ status: answer.status, code: tag('Code').slice(0, 64), message: tag('Message') },
    region:
      /^[a-z0-9-]{1,64}$/.exec(tag('Region') || (answer.headers.get('x-amz-bucket-region') ?? ''))?.[0] ?? '',
    clockAheadMs: Date.now() - date,
    retryAfterMs: (Number(answer.headers.get('retry-after')) || 0) * 1_000,
  }
}

/** As much of the body as fits; what breaks is left out. */
export async function textOf(answer: Response, maxBytes: number): Promise<string> {
  const pieces: Uint8Array[] = []
  let bytes = 0
  try {
    for await (const piece of answer.body ?? []) {
      pieces.push(piece)
      bytes += piece.byteLength
      if (bytes >= maxBytes) break
    }
  } catch {
    // What is there is enough for an error.
  }
  return Buffer.concat(pieces).subarray(0, maxBytes).toString()
}
