/**
 * Writes an answer of another protocol as one of chat completions, while it arrives. Bounded in bytes and per event; a
 * decoder reads whatever comes. An error inside the answer becomes the last event.
 */
import { randomBytes } from 'node:crypto'
import { createParser } from 'eventsource-parser'
import { parseExactly } from '#specs/node/model-protocols/json-tokens.ts'
import type {
  AnswerDecoder,
  StreamPart,
  TokenCount,
  ToolCallFragment,
} from '#specs/node/model-protocols/parts.ts'
import { isRecord } from '#specs/node/model-protocols/records.ts'
import { errorWithin } from '#specs/node/provider-quirks/provider-error.ts'
import { limits } from '#specs/protocol/limits.ts'
import { gatewayError } from '../net/gateway-error.ts'
import { UpstreamBreak } from './upstream.ts'

/** Maximum bytes of an answer before its translation. */
const answerMaxBytes = 16 * 1024 * 1024
/** Maximum characters of one event. */
const eventMaxChars = 4 * 1024 * 1024
/** Maximum calls in one answer; the agent makes fewer. */
const callsMaxCount = 1_000

interface TranslatedAnswer {
  readonly body: AsyncIterable<Uint8Array>
  readonly decoder: AnswerDecoder
  /** Whether the server streams; else it sends one JSON document. */
  readonly streamed: boolean
  /** Called with what the provider wants back, and the id of the first call. */
  keep(callId: string, state: unknown): void
}

/** The answer as a stream of chunks. */
export async function* translateStream(answer: TranslatedAnswer): AsyncGenerator<Uint8Array> {
  const writer = new ChunkWriter()
  for await (const chunks of readChunks(answer, writer))
    if (chunks.length > 0)
      yield Buffer.from(chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join(''))
  if (writer.hasFinished && !writer.hasFailed) yield Buffer.from('data: [DONE]\n\n')
}

/** The answer as one document, for a guest that did not ask for a stream. */
export async function* translateWhole(answer: TranslatedAnswer): AsyncGenerator<Uint8Array> {
  const whole = new WholeAnswer()
  for await (const chunks of readChunks(answer, new ChunkWriter()))
    for (const chunk of chunks) whole.add(chunk)
  yield Buffer.from(JSON.stringify(whole.read()))
}

/** The chunks of each read; an error is the last one. */
async function* readChunks(answer: TranslatedAnswer, writer: ChunkWriter): AsyncGenerator<readonly Chunk[]> {
  try {
    for await (const parts of readParts(answer, writer)) {
      const chunks = parts.map((part) => writer.write(part)).filter((chunk) => chunk !== null)
      yield writer.failure === undefined ? chunks : [...chunks, { error: writer.failure }]
      if (writer.hasFailed) return
    }
  } finally {
    // Once, whatever the server repeats, and also where the guest needs no more of the answer.
    if (writer.kept !== undefined) answer.keep(writer.kept.callId, writer.kept.state)
  }
}

async function* readParts(
  { body, decoder, streamed }: TranslatedAnswer,
  writer: ChunkWriter,
): AsyncGenerator<readonly StreamPart[]> {
  const text = new TextDecoder()
  let parts: StreamPart[] = []
  const read = (data: string, isError = false): void => {
    const value = parseValue(data)
    const document: unknown = Array.isArray(value) ? value[0] : value
    writer.readModel(document)
    const error = errorWithin(document) ?? (isError ? (document ?? data) : undefined)
    if (error !== undefined) writer.failure ??= error
    else decoder.readValue(document, parts)
  }
  const parser = createParser({
    maxBufferSize: eventMaxChars,
    onEvent: ({ event, data }) => {
      if (data.trim() !== '' && !writer.hasFailed) read(data, event === 'error')
    },
  })
  let whole = ''
  let bytes = 0
  for await (const chunk of body) {
    bytes += chunk.byteLength
    if (bytes > answerMaxBytes) throw tooLarge()
    const piece = text.decode(chunk, { stream: true })
    if (streamed) feed(parser, piece)
    else whole += piece
    yield parts
    if (writer.hasFailed) return
    parts = []
  }
  // Completes a last event without a blank line behind it.
  if (streamed) feed(parser, '\n\n')
  else read(whole)
  yield parts
}

function feed(parser: ReturnType<typeof createParser>, piece: string): void {
  try {
    parser.feed(piece)
  } catch {
    throw tooLarge()
  }
}

function tooLarge(): UpstreamBreak {
  const text = `The model's answer is larger than ${answerMaxBytes} bytes, or one event of it than ${eventMaxChars}.`
  return new UpstreamBreak(gatewayError('response_too_large', text))
}

/** Undefined for text that is not JSON. Numbers in arguments of calls are not rounded. */
function parseValue(text: string): unknown {
  try {
    return parseExactly(text)
  } catch {
    return undefined
  }
}

interface Chunk {
  readonly error?: unknown
  readonly model?: string
  readonly choices?: readonly {
    readonly index: number
    readonly delta: Delta
    readonly finish_reason: string | null
  }[]
  readonly usage?: object
}

interface Delta {
  readonly content?: string
  readonly reasoning_content?: string
  readonly tool_calls?: readonly CallPiece[]
}

interface CallPiece {
  readonly index: number
  readonly id?: string
  readonly type?: 'function'
  readonly function: { readonly name?: string; readonly arguments: string }
}

class ChunkWriter {
  /** Position and id of the calls by the server's index, in order. */
  readonly #calls = new Map<number, { readonly at: number; readonly id: string }>()
  #model: string | undefined
  /** What ended the answer; undefined until then. */
  failure: unknown
  hasFinished = false
  /** What the provider wants back, and the id of the first call; undefined until then. */
  kept: { readonly callId: string; readonly state: unknown } | undefined

  get hasFailed(): boolean {
    return this.failure !== undefined
  }

  /** The model that answers, by the server's word. */
  readModel(value: unknown): void {
    const { message, model, modelVersion } = fieldsOf(value)
    const named = fieldsOf(message).model ?? modelVersion ?? model
    if (typeof named === 'string' && named !== '') this.#model = named.slice(0, limits.lineMaxChars)
  }

  write(part: StreamPart): Chunk | null {
    switch (part.type) {
      case 'text':
        return chunkOf({ content: part.text })
      case 'reasoning':
        return chunkOf({ reasoning_content: part.text })
      case 'tool-call-delta':
        return this.#writeCall(part.fragment)
      case 'usage':
        return {
          ...(this.#model === undefined ? {} : { model: this.#model }),
          choices: [],
          usage: wireUsage(part.usage),
        }
      case 'finish':
        this.hasFinished = true
        return chunkOf({}, part.reason)
      case 'state': {
        const [first] = this.#calls.values()
        if (first !== undefined) this.kept = { callId: first.id, state: part.state }
        return null
      }
      case 'error':
        this.failure ??= { message: part.error.message, type: 'server_error', code: part.error.code }
        return null
    }
  }

  #writeCall({ index, id, name, argumentsText }: ToolCallFragment): Chunk | null {
    const key = index ?? this.#calls.size
    const known = this.#calls.get(key)
    if (known === undefined && this.#calls.size >= callsMaxCount) {
      const message = `the answer has more than ${callsMaxCount} calls of tools`
      this.failure ??= { message, type: 'server_error', code: 'response_too_large' }
      return null
    }
    const at = this.#calls.size
    const call = known ?? { at, id: id !== null && /^[\x21-\x7e]{1,128}$/.test(id) ? id : newCallId() }
    this.#calls.set(key, call)
    const head = known === undefined ? { id: call.id, type: 'function' as const } : {}
    const called = { ...(name === null ? {} : { name }), arguments: argumentsText }
    return chunkOf({ tool_calls: [{ index: call.at, ...head, function: called }] })
  }
}

/** Nine letters and digits, which every family accepts. */
function newCallId(): string {
  return randomBytes(5).toString('hex').slice(0, 9)
}

function chunkOf(delta: Delta, reason: string | null = null): Chunk {
  return { choices: [{ index: 0, delta, finish_reason: reason }] }
}

function wireUsage({
  inputTokens,
  outputTokens,
  reasoningTokens,
  cachedTokens,
  cacheWriteTokens,
}: TokenCount): object {
  return {
    prompt_tokens: inputTokens,
    completion_tokens: outputTokens,
    prompt_tokens_details: {
      ...(cachedTokens === undefined ? {} : { cached_tokens: cachedTokens }),
      ...(cacheWriteTokens === undefined ? {} : { cache_write_tokens: cacheWriteTokens }),
    },
    completion_tokens_details: { reasoning_tokens: reasoningTokens },
  }
}

/** Joins chunks to one document. */
class WholeAnswer {
  #content = ''
  #reasoning = ''
  readonly #calls: { id: string; type: 'function'; function: { name: string; arguments: string } }[] = []
  #reason: string | null = null
  #last: Chunk = {}

  add({ choices = [], ...chunk }: Chunk): void {
    this.#last = { ...this.#last, ...chunk }
    for (const { delta, finish_reason: reason } of choices) {
      this.#content += delta.content ?? ''
      this.#reasoning += delta.reasoning_content ?? ''
      for (const piece of delta.tool_calls ?? []) this.#addCall(piece)
      this.#reason = reason ?? this.#reason
    }
  }

  read(): object {
    if (this.#last.error !== undefined) return { error: this.#last.error }
    const message = {
      role: 'assistant',
      content: this.#content === '' ? null : this.#content,
      ...(this.#reasoning === '' ? {} : { reasoning_content: this.#reasoning }),
      ...(this.#calls.length === 0 ? {} : { tool_calls: this.#calls }),
    }
    return { ...this.#last, choices: [{ index: 0, message, finish_reason: this.#reason }] }
  }

  #addCall({ index, id = '', function: { name = '', arguments: text } }: CallPiece): void {
    this.#calls[index] ??= { id, type: 'function', function: { name: '', arguments: '' } }
    const call = this.#calls[index]
    if (call === undefined) return
    call.function.name ||= name
    call.function.arguments += text
  }
}

function fieldsOf(value: unknown): Readonly<Record<string, unknown>> {
  return isRecord(value) ? value : {}
}
