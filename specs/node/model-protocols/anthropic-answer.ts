/** Decodes answers of Anthropic's Messages API, streamed or whole, into the common parts. */
import { errorWithin } from '../provider-quirks/provider-error.ts'
import { type AnthropicState, isKeptBlock } from './anthropic-request.ts'
import { errorFromStream, modelError } from './model-error.ts'
import { type AnswerDecoder, readCount, readFinish, type StreamPart, textOf } from './parts.ts'
import { isRecord } from './records.ts'

const usageFields = [
  'input_tokens',
  'cache_creation_input_tokens',
  'cache_read_input_tokens',
  'output_tokens',
] as const

/** Decodes one answer: blocks by index. Blocks to send back are kept complete. */
export class MessageDecoder implements AnswerDecoder {
  /** Started blocks, and whether each is a call for us. */
  readonly #begun = new Map<number, boolean>()
  readonly #kept = new Map<number, Record<string, unknown>>()
  /** JSON input of kept blocks that arrives in pieces. */
  readonly #inputs = new Map<number, string>()
  /** Events report each count when known; later events never reduce it. */
  readonly #usage = new Map<string, number>()
  #hasFinished = false

  readValue(value: unknown, parts: StreamPart[]): void {
    if (!isRecord(value)) return
    const index = typeof value.index === 'number' ? value.index : 0
    const { type } = value
    if (type === 'content_block_delta') this.#readDelta(index, value.delta, parts)
    else if (type === 'content_block_start') this.#startBlock(index, value.content_block, parts)
    else if (type === 'message_start')
      this.#readUsage(isRecord(value.message) ? value.message.usage : undefined, parts)
    else if (type === 'message_delta') {
      this.#readUsage(value.usage, parts)
      this.#finish(isRecord(value.delta) ? value.delta.stop_reason : undefined, parts)
    } else if (type === 'message') this.#readWhole(value, parts)
    else {
      // Proxies in front of the API have their own error format.
      const error = errorWithin(value)
      if (error !== undefined) parts.push({ type: 'error', error: errorFromStream(error) })
    }
  }

  /** A complete answer, which some servers return although streaming was requested. */
  #readWhole(message: Record<string, unknown>, parts: StreamPart[]): void {
    const blocks = Array.isArray(message.content) ? message.content : []
    for (const [index, block] of blocks.entries()) this.#startBlock(index, block, parts)
    this.#readUsage(message.usage, parts)
    this.#finish(message.stop_reason, parts)
  }

  #startBlock(index: number, block: unknown, parts: StreamPart[]): void {
    if (!isRecord(block)) return
    this.#begun.set(index, block.type === 'tool_use')
    if (block.type === 'text' && textOf(block.text) !== '')
      parts.push({ type: 'text', text: textOf(block.text) })
    else if (block.type === 'tool_use') {
      const input =
        isRecord(block.input) && Object.keys(block.input).length > 0 ? JSON.stringify(block.input) : ''
      parts.push(callPart(index, textOf(block.id), textOf(block.name), input))
    } else if (isKeptBlock(block)) {
      this.#kept.set(index, { ...block })
      if (textOf(block.thinking) !== '') parts.push({ type: 'reasoning', text: textOf(block.thinking) })
    }
  }

  #readDelta(index: number, delta: unknown, parts: StreamPart[]): void {
    if (!isRecord(delta)) return
    const kept = this.#kept.get(index)
    if (delta.type === 'text_delta' && textOf(delta.text) !== '')
      parts.push({ type: 'text', text: textOf(delta.text) })
    else if (delta.type === 'input_json_delta') this.#readInput(index, textOf(delta.partial_json), parts)
    else if (delta.type === 'thinking_delta' && textOf(delta.thinking) !== '') {
      parts.push({ type: 'reasoning', text: textOf(delta.thinking) })
      append(kept, 'thinking', textOf(delta.thinking))
    } else if (delta.type === 'signature_delta') append(kept, 'signature', textOf(delta.signature))
  }

  /** Arguments of a block that never began become a nameless call rather than being lost silently. */
  #readInput(index: number, json: string, parts: StreamPart[]): void {
    if (json === '') return
    if (this.#kept.has(index)) this.#inputs.set(index, (this.#inputs.get(index) ?? '') + json)
    else if (this.#begun.get(index) !== false) parts.push(callPart(index, null, null, json))
  }

  #readUsage(usage: unknown, parts: StreamPart[]): void {
    if (!isRecord(usage)) return
    for (const field of usageFields)
      this.#usage.set(field, Math.max(this.#usage.get(field) ?? 0, readCount(usage[field])))
    const [input = 0, written = 0, read = 0, outputTokens = 0] = usageFields.map((field) =>
      this.#usage.get(field),
    )
    const inputTokens = input + written + read
    const cache = { cachedTokens: read, cacheWriteTokens: written }
    parts.push({ type: 'usage', usage: { inputTokens, ...cache, outputTokens, reasoningTokens: 0 } })
  }

  #finish(reason: unknown, parts: StreamPart[]): void {
    if (textOf(reason) === '' || this.#hasFinished) return
    this.#hasFinished = true
    const blocks = this.#takeKept(reason === 'tool_use')
    if (blocks.length > 0) {
      const state: AnthropicState = { provider: 'anthropic', blocks }
      parts.push({ type: 'state', state })
    }
    if (reason === 'pause_turn')
      parts.push({
        type: 'error',
        error: modelError('broken', 'the model paused its turn, which is for tools of its server'),
      })
    else parts.push(readFinish(textOf(reason)))
  }

  /**
   * The blocks to send back, in order. The API rejects a server tool call without a result unless our results let it
   * continue: truncated ones are omitted.
   */
  #takeKept(continues: boolean): readonly Record<string, unknown>[] {
    const blocks = [...this.#kept].sort(([a], [b]) => a - b)
    const answered = new Set(blocks.map(([, { tool_use_id: id }]) => id))
    const dropped = new Set<unknown>()
    const whole = blocks.map(([index, block]) => {
      if (!textOf(block.type).endsWith('_tool_use')) return block
      const json = this.#inputs.get(index)
      const input = json === undefined ? block.input : parseJson(json)
      if (isRecord(input) && (continues || answered.has(block.id))) return { ...block, input }
      dropped.add(block.id)
      return null
    })
    return whole
      .filter((block) => block !== null)
      .filter(({ tool_use_id: id }) => id === undefined || !dropped.has(id))
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function callPart(index: number, id: string | null, name: string | null, argumentsText: string): StreamPart {
  return { type: 'tool-call-delta', fragment: { index, id, name, argumentsText } }
}

/** Appending strings of one stream costs linear time, since V8 uses ropes. */
function append(block: Record<string, unknown> | undefined, field: string, text: string): void {
  if (block !== undefined) block[field] = textOf(block[field]) + text
}
