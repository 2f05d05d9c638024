/**
 * Builds requests of Anthropic's Messages API and avoids what it rejects: system messages move to the top (later ones
 * into a user turn), turns alternate, tool results come first, no text is empty. Signed thinking and server tool
 * blocks are sent back unchanged.
 */
import { splitImageUrl } from '../../protocol/image.ts'
import { isRecord } from './records.ts'
import { defaultMaxTokens, type ProtocolCall, type ProtocolMessage, type ProtocolRequest } from './request.ts'
import { closeSchema } from './schemas.ts'

type Block = Readonly<Record<string, unknown>>
interface WireTurn {
  readonly role: 'user' | 'assistant'
  readonly content: Block[]
}

/** {@link ProtocolMessage.provider_state} of Anthropic answers. */
export interface AnthropicState {
  readonly provider: 'anthropic'
  /** Thinking blocks, and calls and results of server tools, in order. */
  readonly blocks: readonly Block[]
}

/** Whether a block is sent back unchanged: thinking, or a call or result of a server tool. */
export function isKeptBlock({ type }: Block): boolean {
  return isThought(type) || (typeof type === 'string' && /^\w+_tool_(use|result)$/.test(type))
}

function isThought(type: unknown): boolean {
  return type === 'thinking' || type === 'redacted_thinking'
}

/** How thinking is requested: newer models by effort, older ones by a token budget. */
export type ThinkingForm = 'effort' | 'budget'

/** Models older than effort levels, by name. */
const budgetModels = /claude-(2|3|instant|opus-4-[015]|opus-4-2|sonnet-4-[025]|haiku-4)/

/** @param other whether the model rejected the form of its family */
export function thinkingForm(model: string, other: boolean): ThinkingForm {
  return budgetModels.test(model) !== other ? 'budget' : 'effort'
}

/** Whether an error is about the form in which thinking was requested. */
export function refusesThinking(message: string): boolean {
  return /thinking|adaptive|budget_tokens|\beffort\b/.test(message)
}

export const messagesPath = '/v1/messages'
export const messagesHeaders = { 'anthropic-version': '2023-06-01' } as const

const budgets = { low: 2_048, medium: 8_192, high: 24_576 } as const
const budgetMin = 1_024

/** @param defaults `caches`: marks what the provider is to cache; absent: nothing */
export function toMessagesRequest(
  request: ProtocolRequest,
  defaults: { readonly maxTokens?: number; readonly thinking: ThinkingForm; readonly caches?: boolean },
): Record<string, unknown> {
  const { tools, toolChoice, temperature, topP, stop, responseFormat } = request
  const maxTokens = request.maxTokens ?? defaults.maxTokens ?? defaultMaxTokens
  const first = request.messages.findIndex(({ role }) => role !== 'system')
  const leading = request.messages.slice(0, first < 0 ? undefined : first)
  const system = leading.map(({ content }) => content).filter((text) => text.trim() !== '')
  const format =
    responseFormat === undefined
      ? {}
      : { format: { type: 'json_schema', schema: closeSchema(responseFormat.schema) } }
  const thinking = toThinking(request, maxTokens, defaults.thinking)
  const outputConfig = { ...thinking.output_config, ...format }
  const mark = defaults.caches === true ? markLast : (blocks: readonly Block[]) => blocks
  const turns = toTurns(request.messages.slice(leading.length))
  const offered = [...tools.map(toWireTool), ...(request.webSearch === true ? [searchTool] : [])]
  return {
    model: request.model,
    max_tokens: maxTokens,
    ...(system.length === 0 ? {} : { system: mark(system.map(textBlock)) }),
    messages: defaults.caches === true ? markTurns(turns) : turns,
    // The system message comes after the tools, so its mark is for both.
    ...(offered.length === 0 ? {} : { tools: system.length === 0 ? mark(offered) : offered }),
    ...(tools.length === 0 || toolChoice === undefined ? {} : { tool_choice: toChoice(toolChoice) }),
    // The API rejects a temperature together with thinking.
    ...(temperature === undefined || thinking.thinking !== undefined ? {} : { temperature }),
    ...(topP === undefined || temperature !== undefined || thinking.thinking !== undefined
      ? {}
      : { top_p: topP }),
    ...(stop === undefined ? {} : { stop_sequences: stop }),
    ...(thinking.thinking === undefined ? {} : { thinking: thinking.thinking }),
    ...(Object.keys(outputConfig).length === 0 ? {} : { output_config: outputConfig }),
    stream: true,
  }
}

/** The provider caches what comes before a mark. */
function markLast(blocks: readonly Block[]): readonly Block[] {
  const last = blocks.at(-1)
  return last === undefined ? blocks : blocks.with(-1, { ...last, cache_control: { type: 'ephemeral' } })
}

/** The last two turns of the user: the next request reads what this one wrote. */
function markTurns(turns: readonly WireTurn[]): readonly { role: string; content: readonly Block[] }[] {
  const marked = turns.flatMap(({ role }, at) => (role === 'user' ? [at] : [])).slice(-2)
  return turns.map(({ role, content }, at) => ({
    role,
    content: marked.includes(at) ? markLast(content) : content,
  }))
}

function toThinking(
  request: ProtocolRequest,
  maxTokens: number,
  form: ThinkingForm,
): { thinking?: Block; output_config?: Block } {
  const { reasoningEffort: effort, toolChoice } = request
  if (effort === 'default' || effort === 'none') return {}
  // The API rejects thinking with forced calls and with calls of other models.
  const forced = toolChoice === 'required' || typeof toolChoice === 'object'
  if (forced || !isThoughtThrough(request.messages)) return {}
  if (form === 'effort') return { thinking: { type: 'adaptive' }, output_config: { effort } }
  const budget = Math.min(budgets[effort], maxTokens - budgetMin)
  return budget < budgetMin ? {} : { thinking: { type: 'enabled', budget_tokens: budget } }
}

/** Whether all calls since the user's last turn came with thinking, as required when thinking is on. */
function isThoughtThrough(messages: readonly ProtocolMessage[]): boolean {
  return messages
    .slice(findUserTurn(messages) + 1)
    .every(
      (message) =>
        (message.tool_calls ?? []).length === 0 || keptBlocksOf(message).some(({ type }) => isThought(type)),
    )
}

/** Position of the user's last message that begins a turn; behind results it belongs to their turn, as an image does. */
function findUserTurn(messages: readonly ProtocolMessage[]): number {
  let found = -1
  let isBehindResult = false
  for (const [at, { role }] of messages.entries()) {
    if (role === 'tool') isBehindResult = true
    else if (role === 'assistant') isBehindResult = false
    else if (role === 'user' && !isBehindResult) found = at
  }
  return found
}

function keptBlocksOf({ provider_state: state }: ProtocolMessage): readonly Block[] {
  if (!isRecord(state) || state.provider !== 'anthropic' || !Array.isArray(state.blocks)) return []
  return state.blocks.filter((block: unknown): block is Block => isRecord(block) && isKeptBlock(block))
}

function toTurns(messages: readonly ProtocolMessage[]): WireTurn[] {
  const turns: WireTurn[] = []
  for (const message of messages) {
    const role = message.role === 'assistant' ? 'assistant' : 'user'
    const blocks = toBlocks(message)
    const last = turns.at(-1)
    if (last?.role === role) last.content.push(...blocks)
    else if (blocks.length > 0) turns.push({ role, content: blocks })
  }
  if (turns[0]?.role !== 'user') turns.unshift({ role: 'user', content: [textBlock('(begin)')] })
  return turns.map(orderTurn)
}

function toBlocks(message: ProtocolMessage): Block[] {
  const text = message.content.trim() === '' ? [] : [textBlock(message.content)]
  switch (message.role) {
    case 'system':
      return text.length === 0 ? [] : [textBlock(`[system] ${message.content}`)]
    case 'tool':
      return [
        {
          type: 'tool_result',
          tool_use_id: toWireId(message.tool_call_id ?? ''),
          content: message.content.trim() === '' ? '(no output)' : message.content,
        },
      ]
    case 'assistant':
      return [...keptBlocksOf(message), ...text, ...(message.tool_calls ?? []).map(toToolUse)]
    default:
      return [...text, ...(message.images ?? []).flatMap(toImageBlock)]
  }
}

/** The API takes every type that a request may have. */
function toImageBlock(url: string): Block[] {
  const image = splitImageUrl(url)
  if (image === null) return []
  return [{ type: 'image', source: { type: 'base64', media_type: image.type, data: image.base64 } }]
}

/** Results first; trailing space in a final assistant text is rejected, so it is removed. */
function orderTurn({ role, content }: WireTurn): WireTurn {
  if (role === 'user') {
    const results = content.filter(({ type }) => type === 'tool_result')
    return { role, content: [...results, ...content.filter(({ type }) => type !== 'tool_result')] }
  }
  const last = content.at(-1)
  return typeof last?.text === 'string'
    ? { role, content: content.with(-1, textBlock(last.text.trimEnd())) }
    : { role, content }
}

function textBlock(text: string): Block {
  return { type: 'text', text }
}

function toToolUse(call: ProtocolCall): Block {
  return {
    type: 'tool_use',
    id: toWireId(call.id),
    name: call.function.name,
    input: parseArgumentsObject(call.function.arguments),
  }
}

/** Ids of other providers may contain characters that this one rejects. */
function toWireId(id: string): string {
  const plain = id.replaceAll(/[^A-Za-z0-9_-]/g, '_')
  return plain === '' ? 'none' : plain
}

/** Arguments as an object; anything else becomes an empty one. */
export function parseArgumentsObject(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text)
    return isRecord(value) ? value : {}
  } catch {
    return {}
  }
}

/** Runs on the provider's server (platform.claude.com, web search tool, 2026-11). */
const searchTool: Block = { type: 'web_search_20250305', name: 'web_search' }

function toWireTool(tool: ProtocolRequest['tools'][number]): Block {
  return {
    name: tool.name,
    description: tool.description,
    input_schema: { type: 'object', ...tool.parameters },
  }
}

function toChoice(choice: NonNullable<ProtocolRequest['toolChoice']>): Block {
  if (typeof choice === 'object') return { type: 'tool', name: choice.name }
  return { type: choice === 'required' ? 'any' : 'none' }
}
