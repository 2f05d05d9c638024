/** Writes a run's recording. What cannot be written costs the recording, never the run. */
import { createReadStream } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { hasCode } from '#specs/errors.ts'
import type { CompletionRequest } from '#specs/protocol/completion-request.ts'
import type { Result } from '#specs/protocol/error.ts'
import { writeWithDiskSpace } from '../files/disk-space.ts'
import { type GatewayErrorCode, gatewayError, type WireError } from '../net/gateway-error.ts'
import type { Embedder } from '../providers/embedder.ts'
import { type Upstream, type UpstreamAnswer, UpstreamBreak } from '../providers/upstream.ts'
import { createRedaction, type Redaction } from '../secrets/redaction.ts'
import {
  type ChatDigest,
  digestChat,
  digestWeb,
  type Exchange,
  type ModelAnswer,
  nameImages,
  type RecordingHeader,
  splitChat,
  type WebKind,
} from './format.ts'

/** Bytes of one recording. */
const defaultMaxBytes = 256 * 1024 * 1024
/** Earlier exchanges that are looked at for shared messages: parallel steps take turns. */
const parentsMax = 64

const limitCode: GatewayErrorCode = 'limit_model'
const withoutSpace = gatewayError('closed', 'The disk of the host is full; the run cannot continue there.')

interface RecorderOptions {
  readonly maxBytes?: number
  /** Asked where the disk is full. Absent: the recording ends there. */
  readonly waitForDiskSpace?: () => Promise<void>
}

export class Recorder implements AsyncDisposable {
  readonly #file: FileHandle
  readonly #maxBytes: number
  /** Digests of the images that this process wrote. */
  readonly #images = new Set<string>()
  readonly #earlier: { readonly index: number; readonly digest: ChatDigest }[] = []
  readonly #waitForDiskSpace: (() => Promise<void>) | undefined
  /** Of whole lines. */
  #writtenBytes = 0
  #count = 0
  #bytes = 0
  #isFull = false
  #isBroken = false
  /** Whether a wait for disk space was given up. */
  #isWithoutSpace = false
  #last: Promise<unknown> = Promise.resolve()

  private constructor(file: FileHandle, { maxBytes = defaultMaxBytes, waitForDiskSpace }: RecorderOptions) {
    this.#file = file
    this.#maxBytes = maxBytes
    this.#waitForDiskSpace = waitForDiskSpace
  }

  /** Exchanges until now. */
  get count(): number {
    return this.#count
  }

  /** Resolves when all of them are in the file, or never will be. */
  async flush(): Promise<void> {
    await this.#last
  }

  /** Begins the file, or continues that of an interrupted run: its exchanges count, and no new one refers to them. */
  static async open(path: string, header: RecordingHeader, options: RecorderOptions = {}): Promise<Recorder> {
    const recorder = new Recorder(await open(path, 'a+', 0o600), options)
    const { lines, wholeBytes } = await countLines(path)
    if (lines === 0) {
      await recorder.#file.truncate(0)
      recorder.#append(header)
      return recorder
    }
    await recorder.#file.truncate(wholeBytes)
    recorder.#bytes = wholeBytes
    recorder.#writtenBytes = wholeBytes
    recorder.#count = lines - 1
    return recorder
  }

  /** The same upstream, its answers recorded as the guest gets them. @param keys taken out of them */
  wrap(upstream: Upstream, keys: readonly string[]): Upstream {
    const redaction = createRedaction(keys)
    return {
      send: async (request, options) => {
        // An answer that cannot be recorded would be paid for again by whoever continues the run.
        await this.#last
        if (this.#isWithoutSpace) return { ok: false, error: withoutSpace }
        this.#keepImages(request)
        const answer = await upstream.send(request, options)
        if (!answer.ok) {
          // The run left its process with this limit: its agent never got it, and asks again.
          if (answer.error.code === limitCode && options.signal.aborted) return answer
          this.#model(request, { ok: false, error: redactError(answer.error, redaction) })
          return answer
        }
        const { streamed, headers, model, body } = answer.value
        const finish = (text: string | undefined, broken?: WireError) => {
          if (text === undefined) return this.#end()
          this.#model(request, {
            ok: true,
            streamed,
            headers: { ...headers },
            ...(model === undefined ? {} : { model }),
            body: redaction.text(text),
            ...(broken === undefined ? {} : { broken: redactError(broken, redaction) }),
          })
        }
        return { ok: true, value: { ...answer.value, body: listen(body, this.#maxBytes, finish) } }
      },
      close: () => upstream.close(),
    }
  }

  /** One exchange of the web tools or with the embedding model; `answer` as the guest gets it. */
  web(kind: WebKind, request: unknown, answer: Result<unknown, WireError>): void {
    this.#add({ kind, key: digestWeb(kind, request), request, answer })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#last
    await this.#file.close().catch(() => undefined)
  }

  #model(request: CompletionRequest, answer: ModelAnswer): void {
    const digest = digestChat(request)
    const { parent, shared } = this.#findParent(digest)
    const { messages, settings } = splitChat(request)
    const index = this.#add({
      kind: 'model',
      key: digest.key,
      parent: parent?.index ?? null,
      shared,
      messages: messages.slice(shared).map((message) => nameImages(message)),
      ...(parent?.digest.settings === digest.settings ? {} : { settings }),
      answer,
    })
    this.#earlier.push({ index, digest })
    if (this.#earlier.length > parentsMax) this.#earlier.shift()
  }

  /** Before the answer: whoever watches the run can see what the model looks at. */
  #keepImages({ messages }: CompletionRequest): void {
    for (const message of messages) {
      nameImages(message, (sha256, url) => {
        if (this.#images.has(sha256)) return
        this.#images.add(sha256)
        this.#add({ kind: 'image', sha256, url })
      })
    }
  }

  /** The one with the most messages in common. */
  #findParent(digest: ChatDigest) {
    let found: { readonly index: number; readonly digest: ChatDigest } | undefined
    let shared = 0
    for (const earlier of this.#earlier) {
      const count = countShared(earlier.digest.messages, digest.messages)
      if (count > shared) [found, shared] = [earlier, count]
    }
    return { parent: found, shared }
  }

  #add(exchange: Exchange): number {
    this.#append(exchange)
    this.#count += 1
    return this.#count - 1
  }

  #append(value: object): void {
    if (this.#isFull) return
    const line = `${JSON.stringify(value)}\n`
    this.#bytes += Buffer.byteLength(line)
    if (this.#bytes > this.#maxBytes) this.#end()
    else this.#write(line)
  }

  /** The size limit is reached. */
  #end(): void {
    if (this.#isFull) return
    this.#isFull = true
    this.#write(`${JSON.stringify({ kind: 'full' } satisfies Exchange)}\n`)
  }

  /** Of lines that cannot be written none is there in part, and none that follows. */
  #write(line: string): void {
    this.#last = this.#last
      .then(() => writeWithDiskSpace(() => this.#put(line), this.#waitForDiskSpace))
      .catch((error: unknown) => {
        this.#isBroken = true
        this.#isWithoutSpace = hasCode(error, 'no_space')
      })
  }

  async #put(line: string): Promise<void> {
    if (this.#isBroken) return
    try {
      await this.#file.appendFile(line)
      this.#writtenBytes += Buffer.byteLength(line)
    } catch (error) {
      await this.#file.truncate(this.#writtenBytes)
      throw error
    }
  }
}

/** Of a file whose last line may be cut off. */
async function countLines(path: string): Promise<{ lines: number; wholeBytes: number }> {
  let [lines, bytes, wholeBytes] = [0, 0, 0]
  for await (const chunk of createReadStream(path) as AsyncIterable<Buffer>) {
    for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, at + 1)) {
      lines += 1
      wholeBytes = bytes + at + 1
    }
    bytes += chunk.length
  }
  return { lines, wholeBytes }
}

/** How many messages at the beginning are the same. */
export function countShared(one: readonly string[], other: readonly string[]): number {
  let count = 0
  while (count < one.length && count < other.length && one[count] === other[count]) count += 1
  return count
}

/**
 * Hands the body on, and its text at the end, undefined when it is longer than the bound; one that is given up before it
 * ends is not recorded.
 */
async function* listen(
  body: UpstreamAnswer['body'],
  maxBytes: number,
  finish: (text: string | undefined, broken?: WireError) => void,
): AsyncGenerator<Uint8Array> {
  const pieces: Uint8Array[] = []
  let bytes = 0
  const text = () => (bytes > maxBytes ? undefined : Buffer.concat(pieces).toString('utf8'))
  try {
    for await (const piece of body) {
      bytes += piece.byteLength
      if (bytes <= maxBytes) pieces.push(Buffer.from(piece))
      yield piece
    }
  } catch (cause) {
    if (cause instanceof UpstreamBreak) finish(text(), cause.error)
    throw cause
  }
  finish(text())
}

function redactError(error: WireError, redaction: Redaction): WireError {
  return { ...error, message: redaction.text(error.message) }
}

/** The same embedder; each exchange is recorded as the guest gets it. */
export function recordEmbedder(embedder: Embedder, recorder: Pick<Recorder, 'web'>): Embedder {
  return {
    embed: async (request, options) => {
      const answer = await embedder.embed(request, options)
      recorder.web('embed', request, answer)
      return answer
    },
    close: () => embedder.close(),
  }
}
