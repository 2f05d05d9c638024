/**
 * Answers a run's requests out of a recording, and refuses what it does not know: nothing goes to the network. The same
 * request gets its answers in the order in which they came, and the last of them again and again.
 */

import { createReadStream, statSync } from 'node:fs'
import path from 'node:path'
import { createInterface } from 'node:readline'
import * as z from 'zod'
import { CaissonError, errorMessage, hasCode } from '#specs/errors.ts'
import { type CompletionRequest, contentText } from '#specs/protocol/completion-request.ts'
import { EmbeddingsAnswer } from '#specs/protocol/embeddings.ts'
import type { Result } from '#specs/protocol/error.ts'
import { describeIssues, plainMessages } from '#specs/protocol/issue-text.ts'
import { namedModels, type StepModels } from '#specs/protocol/run-models.ts'
import { Count } from '#specs/protocol/text.ts'
import { parseJson } from '../files/json.ts'
import { gatewayError, type WireError } from '../net/gateway-error.ts'
import type { Embedder } from '../providers/embedder.ts'
import type { ModelProvider, ProviderChoice } from '../providers/providers.ts'
import { type Upstream, type UpstreamAnswer, UpstreamBreak } from '../providers/upstream.ts'
import {
  digestChat,
  digestWeb,
  Exchange,
  type ModelAnswer,
  nameImages,
  RecordingHeader,
  type WebKind,
} from './format.ts'
import { countShared } from './recorder.ts'

type WebAnswer = Result<unknown, WireError>

/** Answers that wait in their order. */
class Answers<T> {
  readonly #byKey = new Map<string, T[]>()

  add(key: string, answer: T): void {
    const known = this.#byKey.get(key)
    if (known === undefined) this.#byKey.set(key, [answer])
    else known.push(answer)
  }

  /** Each of them once. */
  takeOnce(key: string): T | undefined {
    return this.#byKey.get(key)?.shift()
  }

  take(key: string): T | undefined {
    const known = this.#byKey.get(key)
    return known !== undefined && known.length > 1 ? known.shift() : known?.[0]
  }
}

/** What a run's next agent is given again. */
export type EarlierAnswers = Pick<Recording, 'over'>

export class Recording {
  readonly header: RecordingHeader
  readonly #chats = new Answers<ModelAnswer>()
  readonly #web = new Answers<WebAnswer>()
  /** Digests of the messages of each exchange with a model, to say where a request left the recording. */
  readonly #conversations: (readonly string[])[] = []
  readonly #calls: [request: unknown, result: unknown][] = []
  /** Of each request to the model, what it added to an earlier conversation, and the key of that. */
  readonly #added: { readonly text: string; readonly parent: string | undefined; readonly key: string }[] = []
  #isFull = false
  #beforeAnswer: ((key: string) => Promise<void>) | undefined

  private constructor(header: RecordingHeader) {
    this.header = header
  }

  /** @throws {CaissonError} `invalid_recording` @param from number of exchanges whose answers are not needed */
  static async read(file: string, from = 0): Promise<Recording> {
    const lines = createInterface({ input: createReadStream(file), crlfDelay: Number.POSITIVE_INFINITY })
    let recording: Recording | undefined
    const requests: EarlierRequest[] = []
    let number = 0
    try {
      for await (const line of lines) {
        number += 1
        if (recording === undefined) {
          const header = RecordingHeader.safeParse(parseJson(line), plainMessages)
          if (!header.success) {
            const issues = describeIssues(header.error, { root: 'its first line', max: 1 })
            throw new CaissonError(
              'invalid_recording',
              `${file} is not a recording of this version: ${issues}`,
            )
          }
          recording = new Recording(header.data)
        } else {
          const exchange = Exchange.safeParse(parseJson(line), plainMessages)
          if (!exchange.success) {
            const issues = describeIssues(exchange.error, { root: 'the line', max: 1 })
            throw new CaissonError('invalid_recording', `${file}, line ${number}: not an exchange: ${issues}`)
          }
          recording.#add(exchange.data, requests, requests.length >= from)
        }
      }
    } catch (error) {
      if (hasCode(error, 'invalid_recording')) throw error
      const why = errorMessage(error)
      throw new CaissonError(
        'invalid_recording',
        `cannot read the recording ${file}: ${why}; name a run that kept one`,
      )
    }
    if (recording === undefined)
      throw new CaissonError('invalid_recording', `${file} is empty: the run kept no recording`)
    return recording
  }

  #add(exchange: Exchange, requests: EarlierRequest[], isNeeded: boolean): void {
    if (exchange.kind === 'full') {
      this.#isFull = true
    } else if (exchange.kind === 'model') {
      const before = exchange.parent === null ? undefined : requests[exchange.parent]
      const messages = [
        ...(before?.messages ?? []).slice(0, exchange.shared),
        ...exchange.messages,
      ] as CompletionRequest['messages']
      requests.push({ messages, key: exchange.key })
      this.#added.push({ text: textOf(exchange.messages), parent: before?.key, key: exchange.key })
      this.#conversations.push(digestChat({ messages }).messages)
      if (isNeeded) this.#chats.add(exchange.key, exchange.answer)
    } else if (exchange.kind === 'image') {
      requests.push({ messages: [] })
    } else {
      if (exchange.kind === 'call' && exchange.answer.ok)
        this.#calls.push([exchange.request, exchange.answer.value])
      requests.push({ messages: [] })
      if (isNeeded) this.#web.add(exchange.key, exchange.answer)
    }
  }

  /** The recorded answer of the web tools, or of the embedding model. */
  web(kind: WebKind, request: unknown): WebAnswer {
    const what = JSON.stringify(request).slice(0, 300)
    return this.#web.take(digestWeb(kind, request)) ?? this.#unknown(`it has no ${kind} of ${what}`)
  }

  /** Calls of host tools, with their results. */
  get calls(): readonly (readonly [request: unknown, result: unknown])[] {
    return this.#calls
  }

  /** The exchange whose answer came before the first request with this text; undefined: no request has it. */
  answeredBefore(text: string): string | undefined {
    const at = this.#added.findIndex((added) => added.text.includes(text))
    return this.#added[at]?.parent ?? this.#added[at - 1]?.key
  }

  /** Called before each answer of {@link upstream}, with the key of its exchange; the answer waits for it. */
  beforeAnswer(listener: (key: string) => Promise<void>): void {
    this.#beforeAnswer = listener
  }

  /** Answers of the model, each once; what is not recorded, or was not whole, goes to `server`. */
  over(server: Upstream): Upstream {
    return {
      send: async (request, options) => {
        const answer = this.#chats.takeOnce(digestChat(request).key)
        if (answer?.ok !== true || answer.broken !== undefined) return await server.send(request, options)
        return { ok: true, value: { ...playAnswer(answer, request), isPaid: true } }
      },
      close: () => server.close(),
    }
  }

  /** An upstream that replaces the model's server. */
  upstream(): Upstream {
    return {
      send: async (request) => {
        const digest = digestChat(request)
        const answer = this.#chats.take(digest.key)
        if (answer === undefined) return this.#unknown(this.#whereItLeft(digest.messages, request))
        await this.#beforeAnswer?.(digest.key)
        if (!answer.ok) return answer
        return { ok: true, value: playAnswer(answer, request) }
      },
      close: () => Promise.resolve(),
    }
  }

  #whereItLeft(digests: readonly string[], { messages }: CompletionRequest): string {
    const shared = Math.max(0, ...this.#conversations.map((known) => countShared(known, digests)))
    const next = messages[shared]
    if (next === undefined) return 'the conversation is known, but its tools or settings are others'
    const text = contentText(next.content) || JSON.stringify(nameImages(next))
    return `the conversation left it at message ${shared + 1} of ${messages.length}, ${next.role}: ${text.slice(0, 200)}`
  }

  #unknown(where: string): { readonly ok: false; readonly error: WireError } {
    const full = this.#isFull ? ' The recording ended early: it was full.' : ''
    const text = `Not in the recording of ${this.header.runId}: ${where}.${full} Nothing was sent; run without option replay.`
    return { ok: false, error: gatewayError('not_recorded', text) }
  }
}

interface EarlierRequest {
  readonly messages: CompletionRequest['messages']
  /** Absent: it was none to a model. */
  readonly key?: string
}

const Said = z.object({
  role: z.literal('user'),
  content: z.union([
    z.string(),
    z.array(z.object({ text: z.string().default('') }).transform(({ text }) => text)),
  ]),
})

function textOf(messages: readonly unknown[]): string {
  return messages
    .flatMap((message) => {
      const said = Said.safeParse(message)
      return said.success ? said.data.content : []
    })
    .join('\n')
}

function playAnswer(
  { streamed, headers, model, body, broken }: Extract<ModelAnswer, { ok: true }>,
  { messages }: CompletionRequest,
): UpstreamAnswer {
  const requestBytes = Buffer.byteLength(JSON.stringify(messages))
  const answer = { streamed, headers, requestBytes, body: play(body, broken) }
  return model === undefined ? answer : { ...answer, model }
}

async function* play(body: string, broken: WireError | undefined): AsyncGenerator<Uint8Array> {
  yield Buffer.from(body)
  if (broken !== undefined) throw new UpstreamBreak(broken)
}

const FILE = 'exchanges.jsonl'

/**
 * @param name a run, as `findRun` knows it, or a directory, which has a `/` or is there
 * @throws {CaissonError} `invalid_recording` and what `findRun` throws
 */
export async function openRecording(
  name: string,
  findRun: (name: string) => Promise<{ readonly exchanges: string }>,
): Promise<Recording> {
  const isFolder = name.includes('/') || statSync(name, { throwIfNoEntry: false })?.isDirectory() === true
  return await Recording.read(isFolder ? path.join(name, FILE) : (await findRun(name)).exchanges)
}

/** What a run asks that repeats a recording. */
export function recordedProvider({ header: { model, runId } }: Recording): ProviderChoice {
  const note = `Replaying the recording of ${runId}; nothing is sent to the network.`
  return { name: 'recording', model, baseUrl: null, keySource: null, notes: [note] }
}

/** The same for models that steps choose. */
export function recordedStepModels(
  recording: Recording,
  models: StepModels,
): ReadonlyMap<string, ModelProvider> {
  const { keySource: _, ...provider } = recordedProvider(recording)
  return new Map([...namedModels(models)].map(([name, model]) => [name, { ...provider, model, key: null }]))
}

const Embedded = z.strictObject({ data: EmbeddingsAnswer.shape.data, tokens: Count.nullable() })

/** Answers with recorded vectors; uses no network. */
export function replayEmbedder(recording: Pick<Recording, 'web'>): Embedder {
  return {
    embed: async (request) => {
      const answer = recording.web('embed', request)
      if (!answer.ok) return answer
      const value = Embedded.safeParse(answer.value)
      if (value.success) return { ok: true, value: value.data }
      const text = 'The recording holds vectors that are not of their form; run without option replay.'
      return { ok: false, error: gatewayError('not_recorded', text) }
    },
    close: () => Promise.resolve(),
  }
}
