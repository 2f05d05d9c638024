/**
 * The body for a model server, made anew from the guest's validated fields: the host's model, a bounded length, and the
 * forms that servers differ about put so that each takes them. Model, messages and tools are always sent.
 */
import type { ModelCapabilities } from './capabilities.ts'
import { type ChatMessage, type ChatRequest, outputDefaultTokens } from './chat-request.ts'
import type { OptionalField } from './request-rejection.ts'

export interface WireOptions {
  readonly model: string
  readonly abilities: ModelCapabilities
  /** Fields that the server refuses; they are left out, `max_tokens` goes by its other name. */
  readonly refused: ReadonlySet<OptionalField>
  /** Most output tokens that the run may still use. */
  readonly maxTokens: number
  /** Length of the conversation as the server told it; null: it is estimated. */
  readonly promptTokens: number | null
}

export interface WireRequest {
  readonly body: string
  /** The fields in it that a server might refuse and a request can do without. */
  readonly spare: ReadonlySet<OptionalField>
}

/** Bytes of JSON per token, on the low side: it decides how much of the context is left for the answer. */
const leastBytesPerToken = 3
/** What chat templates put around a conversation, in tokens, generously. */
const templateTokens = 256
/** An answer worth asking for, in tokens. */
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

/** The least of what is wanted, what the run may use, and what the model allows beside the conversation. */
function outputTokens(wanted: number, payloadBytes: number, options: WireOptions): number {
  const { abilities, promptTokens, maxTokens } = options
  const most = Math.min(wanted, abilities.maxOutputTokens, maxTokens)
  if (abilities.contextTokens === null) return Math.max(1, most)
  const estimated = Math.ceil(payloadBytes / leastBytesPerToken) + templateTokens
  const left = abilities.contextTokens - (promptTokens ?? estimated)
  // When the estimate leaves nothing, the server is to say how long the conversation is.
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

/** How the wish for more or less thinking is put to this model; nothing when there is none. */
function reasoningFields(request: ChatRequest, { reasoning }: ModelCapabilities): Partial<ChatRequest> {
  const { reasoning_effort: effort, chat_template_kwargs: kwargs } = request
  if (effort === undefined || reasoning === 'effort') return {}
  if (reasoning !== 'enable_thinking') return { reasoning_effort: undefined }
  return {
    reasoning_effort: undefined,
    chat_template_kwargs: { enable_thinking: isThinking(effort), ...kwargs },
  }
}

/** Older Nemotrons take the switch as words of the system message. */
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

/** Messages as every server takes them. */
function adaptMessages(
  messages: readonly ChatMessage[],
  { parallelCalls }: ModelCapabilities,
): ChatMessage[] {
  const whole = messages.map(fillContent)
  return mergeNeighbours(parallelCalls ? whole : splitTurns(whole))
}

/** Content beside calls is null rather than empty, and nothing else is empty: some servers answer 400 to either. */
function fillContent(message: ChatMessage): ChatMessage {
  const isEmpty = (message.content ?? '').trim() === ''
  if (!isEmpty) return message
  if (message.role === 'tool') return { ...message, content: '(no output)' }
  if (message.role !== 'assistant') return message
  return { ...message, content: message.tool_calls === undefined ? '(no answer)' : null }
}

/** Each turn of several calls as so many turns, each with its own result behind it. */
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

/** Neighbours of one role become one message; many chat templates want the roles to take turns. */
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

/** Both as one; null when they are not to be joined. */
function join(first: ChatMessage, second: ChatMessage): ChatMessage | null {
  if (first.role === 'tool' || first.role !== second.role) return null
  const content = [first.content, second.content].filter(Boolean).join('\n\n')
  if (first.role !== 'assistant') return { ...first, content }
  // Calls end a turn: what follows them are their results.
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
