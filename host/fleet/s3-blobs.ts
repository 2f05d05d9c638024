/**
 * The files of a fleet in an S3-compatible store. A file is one object, and appears whole: by one PUT whose digest the server
 * checks, or by the last request of an upload in parts. A download continues where its connection was cut.
 */
import { createHash } from 'node:crypto'
import { CaissonError } from '#specs/errors.ts'
import { type Blob, type BlobStore, type Content, damaged, onlyBlob, requireName } from './blob-store.ts'
import { defaultPatience, type S3Patience, S3Requests, textOf } from './s3-requests.ts'
import type { S3Settings } from './s3-settings.ts'

/** Held in memory while it is sent. S3 takes 10,000 parts of at least 5 MiB. */
const defaultPartBytes = 32 * 1024 * 1024
const partsMax = 10_000
const maxXmlBytes = 64 * 1024

export interface S3BlobsOptions {
  readonly patience?: Partial<S3Patience>
  readonly partBytes?: number
}

export class S3Blobs implements BlobStore {
  readonly shown: string
  readonly #requests: S3Requests
  readonly #partBytes: number

  constructor(settings: S3Settings, { patience, partBytes = defaultPartBytes }: S3BlobsOptions = {}) {
    this.shown = settings.shown
    this.#requests = new S3Requests(settings, { ...defaultPatience, ...patience })
    this.#partBytes = partBytes
  }

  async has(name: string, bytes: number): Promise<boolean> {
    const asked = { phase: 'looking for a file', method: 'HEAD', name: keyOf(name), expected: [404] } as const
    const answer = await this.#requests.send(asked)
    return answer.ok && Number(answer.headers.get('content-length')) === bytes
  }

  async write(name: string, blob: Blob, content: Content): Promise<void> {
    const key = keyOf(name)
    if (blob.bytes > this.#partBytes) return await this.#writeParts(key, blob, content)
    for await (const body of inParts(onlyBlob(content, blob), blob.bytes, Math.max(blob.bytes, 1)))
      await this.#finish({ phase: 'storing a file', method: 'PUT', name: key, body, sha256: blob.sha256 })
  }

  async *read(name: string, { sha256, bytes }: Blob): AsyncGenerator<Buffer, void> {
    const place = `${keyOf(name)} of ${this.shown}`
    const hash = createHash('sha256')
    let seen = 0
    for (let tried = 1, before = 0; seen < bytes || tried === 1; ) {
      const answer = await this.#requestFrom(name, seen, bytes, place)
      let why: unknown = 'the connection ended early'
      try {
        for await (const piece of this.#whileItMoves(answer)) {
          if (seen + piece.byteLength > bytes) throw damaged(place, `it has more than ${bytes} bytes`)
          seen += piece.byteLength
          hash.update(piece)
          yield piece
        }
      } catch (error) {
        if (error instanceof CaissonError) throw error
        why = error
      }
      if (seen >= bytes) break
      tried = seen > before ? 2 : tried + 1
      before = seen
      if (tried > this.#requests.patience.tries) {
        const at = `${reasonFor(why)} after ${seen} of ${bytes} bytes`
        throw this.#requests.gaveUp('reading a file', at, tried - 1)
      }
      await this.#requests.pause(tried - 1)
    }
    const found = hash.digest('hex')
    if (found !== sha256) throw damaged(place, `its digest is ${found}`)
  }

  async remove(name: string): Promise<void> {
    await this.#finish({ phase: 'removing a file', method: 'DELETE', name: keyOf(name), expected: [404] })
  }

  /** An upload that is not finished shows nothing, and is aborted where this process can still do it. */
  async #writeParts(key: string, blob: Blob, content: Content): Promise<void> {
    const begun = await this.#requests.send({
      ...{ phase: 'beginning an upload', method: 'POST', name: key, query: { uploads: '' } },
    })
    const uploadId = /<UploadId>([^<]{1,1024})<\/UploadId>/.exec(await textOf(begun, maxXmlBytes))?.[1]
    if (uploadId === undefined)
      throw new CaissonError('state_unavailable', `beginning an upload in ${this.shown} gave no id of it`)
    try {
      const tags: string[] = []
      const partBytes = Math.max(this.#partBytes, Math.ceil(blob.bytes / partsMax))
      for await (const body of inParts(onlyBlob(content, blob), blob.bytes, partBytes)) {
        const query = { partNumber: `${tags.length + 1}`, uploadId }
        const answer = await this.#requests.send({
          phase: 'storing a part',
          method: 'PUT',
          name: key,
          query,
          body,
        })
        await answer.body?.cancel()
        tags.push(answer.headers.get('etag') ?? '')
      }
      await this.#complete(key, uploadId, tags, blob)
    } catch (error) {
      const abort = { phase: 'ending an upload', method: 'DELETE', name: key, query: { uploadId } } as const
      await this.#finish({ ...abort, expected: [404] }).catch(() => undefined)
      throw error
    }
  }

  async #complete(key: string, uploadId: string, tags: readonly string[], { bytes }: Blob): Promise<void> {
    const parts = tags.map(
      (tag, index) => `<Part><PartNumber>${index + 1}</PartNumber><ETag>${escapeXml(tag)}</ETag></Part>`,
    )
    const body = Buffer.from(`<CompleteMultipartUpload>${parts.join('')}</CompleteMultipartUpload>`)
    const phase = 'completing an upload'
    const { tries } = this.#requests.patience
    for (let tried = 1; ; tried += 1) {
      // 404: an earlier try completed it, and its answer was lost; or it was aborted.
      const answer = await this.#requests.send({
        ...{ phase, method: 'POST', name: key, query: { uploadId }, body, expected: [404] },
      })
      const text = await textOf(answer, maxXmlBytes)
      // The server answers before it has joined the parts, and may report a failure in the body of status 200.
      if (!text.includes('<Error>') || answer.status === 404) break
      const seen = /<Code>([A-Za-z]{1,64})<\/Code>/.exec(text)?.[1] ?? 'an error'
      if (tried >= tries) throw this.#requests.gaveUp(phase, seen, tried)
      await this.#requests.pause(tried)
    }
    const asked = { phase, method: 'HEAD', name: key, expected: [404] } as const
    const there = await this.#requests.send(asked)
    if (!there.ok || Number(there.headers.get('content-length')) !== bytes)
      throw new CaissonError(
        'state_unavailable',
        `${phase} in ${this.shown} left no object of ${bytes} bytes`,
        {
          cause: new Error('the upload is not there'),
        },
      )
  }

  async #requestFrom(name: string, seen: number, bytes: number, place: string): Promise<Response> {
    const answer = await this.#requests.send({
      ...{ phase: 'reading a file', method: 'GET', name: keyOf(name), expected: [404] },
      ...(seen === 0 ? {} : { headers: { range: `bytes=${seen}-` } }),
    })
    if (answer.status === 404) {
      const isBucket = (await textOf(answer, maxXmlBytes)).includes('NoSuchBucket')
      throw damaged(place, isBucket ? 'its bucket is missing' : 'it is missing')
    }
    const whole = Number(answer.headers.get('content-length') ?? bytes - seen) + seen
    const isPart = answer.status === 206 && answer.headers.get('content-range')?.startsWith(`bytes ${seen}-`)
    if (whole === bytes && (seen === 0 || isPart === true)) return answer
    await answer.body?.cancel()
    if (whole !== bytes) throw damaged(place, `it has ${whole} bytes instead of ${bytes}`)
    throw this.#requests.gaveUp('reading a file', 'the store sends no part of a file', 1)
  }

  async *#whileItMoves(answer: Response): AsyncGenerator<Buffer, void> {
    const { idleMs } = this.#requests.patience
    const reader = answer.body?.getReader()
    try {
      while (reader !== undefined) {
        const idle = Promise.withResolvers<never>()
        const timer = setTimeout(() => idle.reject(new Error(`nothing came for ${idleMs} ms`)), idleMs)
        const { value, done } = await Promise.race([reader.read(), idle.promise]).finally(() =>
          clearTimeout(timer),
        )
        if (done) return
        yield Buffer.from(value.buffer, value.byteOffset, value.byteLength)
      }
    } finally {
      // Also of a reader who needs no more.
      await reader?.cancel().catch(() => undefined)
    }
  }

  async #finish(request: Parameters<S3Requests['send']>[0]): Promise<void> {
    const answer = await this.#requests.send(request)
    await answer.body?.cancel()
  }
}

/** In 256 folders, as in a directory. */
function keyOf(name: string): string {
  return `${requireName(name).slice(0, 2)}/${name}`
}

function reasonFor(error: unknown): string {
  return error instanceof Error ? error.message.slice(0, 200) : String(error)
}

function escapeXml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;')
}

/** Parts of a size, the last one shorter; one empty part of nothing. */
async function* inParts(
  content: AsyncIterable<Uint8Array>,
  bytes: number,
  partBytes: number,
): AsyncGenerator<Uint8Array<ArrayBuffer>, void> {
  let left = bytes
  let part = new Uint8Array(Math.min(partBytes, left))
  let filled = 0
  let held: Uint8Array<ArrayBuffer> | undefined
  for await (const piece of content) {
    for (let at = 0; at < piece.byteLength; ) {
      // The last part is given at the end alone: by then the content was checked.
      if (held !== undefined) yield held
      held = undefined
      const fits = piece.subarray(at, at + part.byteLength - filled)
      part.set(fits, filled)
      filled += fits.byteLength
      at += fits.byteLength
      if (filled < part.byteLength) continue
      held = part
      left -= filled
      filled = 0
      part = new Uint8Array(Math.min(partBytes, left))
    }
  }
  yield held ?? part
}
