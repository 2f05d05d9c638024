/**
 * Builds the body for a model server from the guest's validated fields: the host's model, a limited length, and forms
 * that every server accepts. Always sends model, messages and tools.
 */
import type { ModelCapabilities } from './capabilities.ts'
import { type ChatMessage, type ChatRequest, outputDefaultTokens } from './chat-request.ts'
import type { OptionalField } from './request-rejection.ts'

export interface WireOptions {
  readonly model: string
  readonly abilities: ModelCapabilities
  /** Fields that the server rejects; they are omitted, and `max_tokens` is renamed. */
  readonly refused: ReadonlySet<OptionalField>
  /** Output tokens left in the run's budget. */
  readonly maxTokens: number
  /** Length of the conversation by the server's count; null: estimated. */
  readonly promptTokens: number | null
}

export interface WireRequest {
  readonly body: string
  /** Included fields that a server might reject and a request can omit. */
  readonly spare: ReadonlySet<OptionalField>
}

/** Lower estimate of JSON bytes per token, which determines the context left for the answer. */
const leastBytesPerToken = 3
/** Generous estimate of a chat template's own tokens. */
const templateTokens = 256
/** Minimum tokens of a useful answer. */
const outputMinTokens = 256

export function buildWireRequest(request: ChatRequest, options: WireOptions): WireRequest {
  const { abilities, refused, model } = options
  const { model: _model, stream_options: _options, max_tokens: wanted, messages, tools, ...rest } = request
  const spoken = adaptMessages(switchReasoning(messages, request, abilities), abilities)
  const fields = {
    ...rest,
    ...reasoningFields(request, abilities),
    ...(request.stream === true ? { stream_options: { include_usage: true } } : {}),
  }
  const kept = Object.fromEntries(
    Object.entries(fields).filter(
      ([name, value]) => value !== undefined && !refused.has(name as OptionalField),
    ),
  )
  // Without `stream` there is nothing to say of the stream.
  if (refused.has('stream')) delete kept.stream_options
  const shown = refused.has('reasoning_content') ? spoken.map(withoutReasoning) : spoken
  const offered = refused.has('strict') ? tools?.map(withoutStrict) : tools
  const payload = { model, messages: shown, ...(offered === undefined ? {} : { tools: offered }), ...kept }
  const json = JSON.stringify(payload)
  const length = outputTokens(wanted ?? outputDefaultTokens, Buffer.byteLength(json), options)
  const lengthName = refused.has('max_tokens') ? 'max_completion_tokens' : 'max_tokens'
  const body = `${json.slice(0, -1)},"${lengthName}":${length}}`
  return { body, spare: spareOf(kept, shown, offered, lengthName) }
}

/** The minimum of what is requested, what the budget allows, and what fits beside the conversation. */
function outputTokens(wanted: number, payloadBytes: number, options: WireOptions): number {
  const { abilities, promptTokens, maxTokens } = options
  const most = Math.min(wanted, abilities.maxOutputTokens, maxTokens)
  if (abilities.contextTokens === null) return Math.max(1, most)
  const estimated = Math.ceil(payloadBytes / leastBytesPerToken) + templateTokens
  const left = abilities.contextTokens - (promptTokens ?? estimated)
  // If the estimate leaves nothing, let the server report the length of the conversation.
  return Math.max(1, Math.min(most, Math.max(left, promptTokens === null ? outputMinTokens : 1)))
}

function spareOf(
  kept: object,
  messages: readonly ChatMessage[],
  tools: ChatRequest['tools'],
  lengthName: string,
): ReadonlySet<OptionalField> {
  const spare = new Set(Object.keys(kept) as OptionalField[])
  if (lengthName === 'max_tokens') spare.add('max_tokens')
  if (messages.some((message) => 'reasoning_content' in message)) spare.add('reasoning_content')
  if (tools?.some((tool) => tool.function.strict !== undefined)) spare.add('strict')
  return spare
}

/** How to request more or less reasoning from this model; nothing without a request. */
function reasoningFields(request: ChatRequest, { reasoning }: ModelCapabilities): Partial<ChatRequest> {
  const { reasoning_effort: effort, chat_template_kwargs: kwargs } = request
  if (effort === undefined || reasoning === 'effort') return {}
  if (reasoning !== 'enable_thinking') return { reasoning_effort: undefined }
  return {
    reasoning_effort: undefined,
    chat_template_kwargs: { enable_thinking: isThinking(effort), ...kwargs },
  }
}

/** Older Nemotrons read the switch from the system message. */
function switchReasoning(
  messages: readonly ChatMessage[],
  { reasoning_effort: effort }: ChatRequest,
  { reasoning }: ModelCapabilities,
): readonly ChatMessage[] {
  if (effort === undefined || (reasoning !== 'slash' && reasoning !== 'detailed')) return messages
  const isOn = isThinking(effort)
  const words =
    reasoning === 'slash' ? (isOn ? '/think' : '/no_think') : `detailed thinking ${isOn ? 'on' : 'off'}`
  return [{ role: 'system', content: words }, ...messages]
}

function isThinking(effort: NonNullable<ChatRequest['reasoning_effort']>): boolean {
  return effort !== 'none' && effort !== 'minimal'
}

/** Messages in a form that every server accepts. */
function adaptMessages(
  messages: readonly ChatMessage[],
  { parallelCalls }: ModelCapabilities,
): ChatMessage[] {
  const whole = messages.map(fillContent)
  return mergeNeighbours(parallelCalls ? whole : splitTurns(whole))
}

/** Content beside calls is null, and nothing else is empty: some servers answer 400 otherwise. */
function fillContent(message: ChatMessage): ChatMessage {
  const isEmpty = (message.content ?? '').trim() === ''
  if (!isEmpty) return message
  if (message.role === 'tool') return { ...message, content: '(no output)' }
  if (message.role !== 'assistant') return message
  return { ...message, content: message.tool_calls === undefined ? '(no answer)' : null }
}

/** Splits a turn of several calls into single-call turns, each followed by its result. */
function splitTurns(messages: readonly ChatMessage[]): ChatMessage[] {
  const split: ChatMessage[] = []
  for (let at = 0; at < messages.length; at += 1) {
    const turn = messages[at]
    if (turn?.role !== 'assistant' || turn.tool_calls === undefined || turn.tool_calls.length < 2) {
      if (turn !== undefined) split.push(turn)
      continue
    }
    const results: ChatMessage[] = []
    for (let next = messages[at + 1]; next?.role === 'tool'; next = messages[at + 1]) {
      results.push(next)
      at += 1
    }
    for (const [index, call] of turn.tool_calls.entries()) {
      split.push({ ...turn, content: index === 0 ? (turn.content ?? null) : null, tool_calls: [call] })
      for (const result of results)
        if (result.role === 'tool' && result.tool_call_id === call.id) split.push(result)
    }
  }
  return split
}

/** Merges adjacent messages of one role; many chat templates require alternating roles. */
function mergeNeighbours(messages: readonly ChatMessage[]): ChatMessage[] {
  const merged: ChatMessage[] = []
  for (const message of messages) {
    const last = merged.at(-1)
    const joined = last === undefined ? null : join(last, message)
    if (joined === null) merged.push(message)
    else merged[merged.length - 1] = joined
  }
  return merged
}

/** The merged message; null if they must stay separate. */
function join(first: ChatMessage, second: ChatMessage): ChatMessage | null {
  if (first.role === 'tool' || first.role !== second.role) return null
  const content = [first.content, second.content].filter(Boolean).join('\n\n')
  if (first.role !== 'assistant') return { ...first, content }
  // Calls end a turn: the next messages are their results.
  if (first.tool_calls !== undefined || second.role !== 'assistant') return null
  return { ...first, ...second, content: content === '' ? null : content }
}

function withoutReasoning(message: ChatMessage): ChatMessage {
  if (message.role !== 'assistant') return message
  const { reasoning_content: _, ...rest } = message
  return rest
}

function withoutStrict(tool: NonNullable<ChatRequest['tools']>[number]): typeof tool {
  const { strict: _, ...rest } = tool.function
  return { ...tool, function: rest }
}
