/** Anthropic's Messages API as a provider: its event stream as the parts that all providers yield. */
import type { Provider, ProviderRequest } from '../contract.ts'
import { readCount, readFinish, type StreamPart, textOf } from '../llm/chunk.ts'
import { errorFromStream } from '../llm/dialects.ts'
import { modelError } from '../llm/errors.ts'
import { type AnswerDecoder, exchange } from '../llm/exchange.ts'
import { isRecord } from '../llm/json-schema.ts'
import { type AnthropicState, type ThinkingForm, toMessagesRequest } from './anthropic-request.ts'
import type { Connection } from './connection.ts'

const apiVersion = '2023-06-01'
/** Its models think for minutes without a word. */
const idleTimeoutMs = 600_000
/** Models from before efforts, by name. */
const budgetModels = /claude-(2|3|instant|opus-4-[015]|opus-4-2|sonnet-4-[025]|haiku-4)/

export function createAnthropicProvider(connection: Connection): Provider {
  const { maxTokens, body } = connection.config
  const otherForm = new Set<string>()
  return {
    async *stream(request) {
      for (;;) {
        const form = thinkingForm(request.model, otherForm.has(request.model))
        const message = toMessagesRequest(request, {
          thinking: form,
          ...(maxTokens === undefined ? {} : { maxTokens }),
        })
        let refused = false
        for await (const parts of ask({ ...message, ...body }, request, connection)) {
          refused = !otherForm.has(request.model) && message.thinking !== undefined && refusesThinking(parts)
          if (!refused) yield parts
        }
        if (!refused) return
        otherForm.add(request.model)
      }
    },
  }
}

function ask(
  body: Record<string, unknown>,
  request: ProviderRequest,
  connection: Connection,
): AsyncGenerator<readonly StreamPart[]> {
  const options = {
    idleTimeoutMs,
    ...connection.options(request.signal, { 'anthropic-version': apiVersion }),
  }
  return exchange(
    { url: `${connection.baseUrl}/v1/messages`, body, streamed: true },
    new MessageDecoder(),
    options,
  )
}

function thinkingForm(model: string, other: boolean): ThinkingForm {
  return budgetModels.test(model) !== other ? 'budget' : 'effort'
}

/** Whether a model was told to think in a form that it does not know. */
function refusesThinking(parts: readonly StreamPart[]): boolean {
  const [part] = parts
  return (
    part?.type === 'error' &&
    part.error.code === 'invalid_request' &&
    /thinking|adaptive|budget_tokens|\beffort\b/.test(part.error.message)
  )
}

/** Reads one answer: blocks by their index, of which thoughts are kept whole. */
export class MessageDecoder implements AnswerDecoder {
  readonly #thoughts = new Map<number, Record<string, unknown>>()
  readonly #usage = { input: 0, output: 0 }

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
    else if (type === 'error') parts.push({ type: 'error', error: errorFromStream(value.error) })
  }

  /** An answer in one piece, which some servers give although a stream was asked for. */
  #readWhole(message: Record<string, unknown>, parts: StreamPart[]): void {
    const blocks = Array.isArray(message.content) ? message.content : []
    for (const [index, block] of blocks.entries()) this.#startBlock(index, block, parts)
    this.#readUsage(message.usage, parts)
    this.#finish(message.stop_reason, parts)
  }

  #startBlock(index: number, block: unknown, parts: StreamPart[]): void {
    if (!isRecord(block)) return
    if (block.type === 'text' && textOf(block.text) !== '')
      parts.push({ type: 'text', text: textOf(block.text) })
    else if (block.type === 'tool_use') {
      const input =
        isRecord(block.input) && Object.keys(block.input).length > 0 ? JSON.stringify(block.input) : ''
      parts.push(callPart(index, textOf(block.id), textOf(block.name), input))
    } else if (block.type === 'thinking' || block.type === 'redacted_thinking') {
      this.#thoughts.set(index, { ...block })
      if (textOf(block.thinking) !== '') parts.push({ type: 'reasoning', text: textOf(block.thinking) })
    }
  }

  #readDelta(index: number, delta: unknown, parts: StreamPart[]): void {
    if (!isRecord(delta)) return
    const thought = this.#thoughts.get(index)
    if (delta.type === 'text_delta' && textOf(delta.text) !== '')
      parts.push({ type: 'text', text: textOf(delta.text) })
    else if (delta.type === 'input_json_delta' && textOf(delta.partial_json) !== '')
      parts.push(callPart(index, null, null, textOf(delta.partial_json)))
    else if (delta.type === 'thinking_delta' && textOf(delta.thinking) !== '') {
      parts.push({ type: 'reasoning', text: textOf(delta.thinking) })
      append(thought, 'thinking', textOf(delta.thinking))
    } else if (delta.type === 'signature_delta') append(thought, 'signature', textOf(delta.signature))
  }

  #readUsage(usage: unknown, parts: StreamPart[]): void {
    if (!isRecord(usage)) return
    const input =
      readCount(usage.input_tokens) +
      readCount(usage.cache_creation_input_tokens) +
      readCount(usage.cache_read_input_tokens)
    this.#usage.input = Math.max(this.#usage.input, input)
    this.#usage.output = Math.max(this.#usage.output, readCount(usage.output_tokens))
    const { input: inputTokens, output: outputTokens } = this.#usage
    parts.push({ type: 'usage', usage: { inputTokens, outputTokens, reasoningTokens: 0 } })
  }

  #finish(reason: unknown, parts: StreamPart[]): void {
    if (textOf(reason) === '') return
    const thoughts = [...this.#thoughts.values()]
    if (thoughts.length > 0) {
      const state: AnthropicState = { provider: 'anthropic', thoughts }
      parts.push({ type: 'state', state })
    }
    if (reason === 'pause_turn')
      parts.push({
        type: 'error',
        error: modelError('broken', 'the model paused its turn, which is for tools of its server'),
      })
    else parts.push(readFinish(textOf(reason)))
  }
}

function callPart(index: number, id: string | null, name: string | null, argumentsText: string): StreamPart {
  return { type: 'tool-call-delta', fragment: { index, id, name, argumentsText } }
}

/** Strings of one stream are put together by a growing rope: linear in what comes. */
function append(thought: Record<string, unknown> | undefined, field: string, text: string): void {
  if (thought !== undefined) thought[field] = textOf(thought[field]) + text
}
