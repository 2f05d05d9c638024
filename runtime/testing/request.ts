/** A request as a scripted model receives it: in process, through a provider, or over HTTP. */
import type { Asked } from '#specs/testing/model-server.ts'
import type { LLMChatMessage, LLMToolCall, LLMToolDefinition, ProviderRequest } from '../contract/contract.ts'
import { isRecord } from '../llm/json-schema.ts'
import { shorten } from './replies.ts'

export interface ScriptedRequest {
  /** Counted from 0, over all ways. */
  readonly index: number
  readonly via: 'call' | 'provider' | 'http'
  /** Empty when none was named. */
  readonly model: string
  readonly messages: readonly LLMChatMessage[]
  /** The tools as described to the model. */
  readonly tools: readonly LLMToolDefinition[]
  readonly toolChoice?: ProviderRequest['toolChoice']
  readonly responseFormat?: ProviderRequest['responseFormat']
  readonly reasoningEffort?: string
  readonly maxTokens?: number
  /** Text of the last user message; empty when there is none. */
  readonly lastUserText: string
  /** Text of the last message if it is a tool's result; else absent. */
  readonly lastResult?: string
  /** Number of assistant messages so far: 0 in a conversation's first request. */
  readonly turn: number
  /** In a request of Caisson's own agent: the id of its plan step, or `plan`. */
  readonly step?: string
  /** Over HTTP: the raw request. */
  readonly http?: Pick<Asked, 'path' | 'headers' | 'body'>
}

type Given = Omit<ScriptedRequest, 'lastUserText' | 'lastResult' | 'turn' | 'step'>

/** Adds the fields derived from its messages. */
export function makeRequest(given: Given): ScriptedRequest {
  const { messages } = given
  const last = messages.at(-1)
  const step = stepOf(messages)
  return {
    ...given,
    lastUserText: messages.findLast(({ role }) => role === 'user')?.content ?? '',
    ...(last?.role === 'tool' ? { lastResult: last.content } : {}),
    turn: messages.filter(({ role }) => role === 'assistant').length,
    ...(step === undefined ? {} : { step }),
  }
}

/** The format of Caisson's prompts is a contract, which `agent/context/prompts.ts` states. */
function stepOf(messages: readonly LLMChatMessage[]): string | undefined {
  const opening = messages[0]?.content ?? ''
  if (opening.startsWith("You are Caisson's planner.")) return 'plan'
  if (!opening.startsWith("You are Caisson's agent.")) return undefined
  // Text inside a block can look like a section; ignore it.
  const sections = (messages[1]?.content ?? '').replaceAll(/^<([a-z-]+)[^\n]*>\n[\s\S]*?\n<\/\1>$/gm, '')
  return /^# This step\nid: (\S+)$/m.exec(sections)?.[1]
}

/** Parses a chat completions request; fields of an unexpected type count as absent. */
export function readHttpRequest(asked: Asked, index: number): ScriptedRequest {
  const { body } = asked
  const toolChoice = readToolChoice(body.tool_choice)
  const format = readFormat(body.response_format)
  const maxTokens = body.max_completion_tokens ?? body.max_tokens
  return makeRequest({
    index,
    via: 'http',
    model: textOf(body.model),
    messages: listOf(body.messages).map(readMessage),
    tools: listOf(body.tools).map(readTool),
    ...(toolChoice === undefined ? {} : { toolChoice }),
    ...(format === undefined ? {} : { responseFormat: format }),
    ...(typeof body.reasoning_effort === 'string' ? { reasoningEffort: body.reasoning_effort } : {}),
    ...(typeof maxTokens === 'number' ? { maxTokens } : {}),
    http: { path: asked.path, headers: asked.headers, body },
  })
}

/** Newer models take the rules from a `developer`, which equals `system`. */
const roles: ReadonlyMap<unknown, LLMChatMessage['role']> = new Map([
  ['system', 'system'],
  ['developer', 'system'],
  ['assistant', 'assistant'],
  ['tool', 'tool'],
])

function readMessage(message: Record<string, unknown>): LLMChatMessage {
  const { role } = message
  const calls = listOf(message.tool_calls).map(readCall)
  return {
    role: roles.get(role) ?? 'user',
    content: contentOf(message.content),
    ...(calls.length > 0 ? { tool_calls: calls } : {}),
    ...(typeof message.tool_call_id === 'string' ? { tool_call_id: message.tool_call_id } : {}),
    ...(typeof message.reasoning_content === 'string'
      ? { reasoning_content: message.reasoning_content }
      : {}),
  }
}

function readCall(call: Record<string, unknown>): LLMToolCall {
  const body = isRecord(call.function) ? call.function : {}
  return {
    id: textOf(call.id),
    type: 'function',
    function: { name: textOf(body.name), arguments: textOf(body.arguments) },
  }
}

function readTool(tool: Record<string, unknown>): LLMToolDefinition {
  const body = isRecord(tool.function) ? tool.function : {}
  return {
    name: textOf(body.name),
    description: textOf(body.description),
    parameters: isRecord(body.parameters) ? body.parameters : {},
  }
}

function readToolChoice(choice: unknown): ProviderRequest['toolChoice'] {
  if (choice === 'none' || choice === 'required') return choice
  return isRecord(choice) && isRecord(choice.function) ? { name: textOf(choice.function.name) } : undefined
}

function readFormat(format: unknown): ProviderRequest['responseFormat'] {
  const described = isRecord(format) ? format.json_schema : undefined
  if (!isRecord(described)) return undefined
  return { name: textOf(described.name), schema: isRecord(described.schema) ? described.schema : {} }
}

/** Content is text, or a list of parts; the text parts count. */
function contentOf(content: unknown): string {
  if (typeof content === 'string') return content
  return listOf(content)
    .map((part) => textOf(part.text))
    .join('')
}

function listOf(value: unknown): Record<string, unknown>[] {
  return Array.isArray(value) ? value.filter(isRecord) : []
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

/** The request in a line, for failures. */
export function describeRequest(request: ScriptedRequest): string {
  const { messages, tools, step } = request
  const last = messages.at(-1)
  const said = last === undefined ? 'no messages' : `${last.role} ${shorten(last.content)}`
  const offered = tools.length === 0 ? 'no tools' : `tools ${tools.map(({ name }) => name).join(', ')}`
  const place = step === undefined ? '' : `, step ${step}`
  return `${said} (turn ${request.turn}${place}, ${messages.length} messages, ${offered})`
}
