/**
 * `generateStructured`: an answer that fits a schema, as part of the library. Requests it without tools; throws when
 * no valid answer comes after at most three requests.
 */

import * as z from 'zod'
import { CaissonError, requireObject } from '#specs/errors.ts'
import { type AnswerSchema, type JsonSchema, openSchema } from '#specs/node/json-schema.ts'
import { modelError } from '#specs/node/model-protocols/model-error.ts'
import { openZodSchema } from '../arguments/json-schema.ts'
import type { LLMChatMessage, LLMResponse, LLMUsage } from '../contract/contract.ts'
import { cachedEnvironment, checkEnvironment, type LLMEnvironment } from '../environment/environment.ts'
import { generate, type LLMRequest } from '../generate/generate.ts'
import type { ChatMessage } from '../llm/messages.ts'
import type { Model, Turn } from '../llm/model.ts'
import { McpRegistry } from '../mcp/registry.ts'
import { LLMError } from '../providers/errors.ts'
import { toChatMessages } from '../providers/openai.ts'
import { requestStructured } from './request.ts'

export interface StructuredOptions<T>
  extends Omit<
    LLMRequest,
    'tools' | 'extraTools' | 'builtIns' | 'toolPermission' | 'toolChoice' | 'responseFormat'
  > {
  /** A zod schema, whose output is the value; or a JSON schema. */
  readonly schema: z.ZodType<T> | JsonSchema
  /** Name of the answer for the model. Default `answer`; 1 to 64 of A-Z a-z 0-9 _ - */
  readonly name?: string
  readonly description?: string
}

export interface StructuredResult<T> {
  readonly value: T
  /** Descriptions of the repairs to the model's answer. */
  readonly corrections: readonly string[]
  /** Number of requests whose answer was parsed. */
  readonly requests: number
  /** Sum over all requests. */
  readonly usage: LLMUsage
}

/** The model answered, but never in the requested form. */
export class LLMStructuredError extends CaissonError {
  override readonly name = 'LLMStructuredError'
  readonly provider: string
  /** `invalid`: no answer fitted the schema; `refused`: the provider withheld it. */
  readonly kind: 'invalid' | 'refused'
  readonly usage: LLMUsage

  constructor(provider: string, kind: 'invalid' | 'refused', message: string, usage: LLMUsage) {
    super(
      kind === 'refused' ? 'model_refused' : 'model_broken',
      `${provider} gave no answer of the form that was asked for: ${message}`,
    )
    this.provider = provider
    this.kind = kind
    this.usage = usage
  }
}

/**
 * The model's answer as a value of the schema.
 * @throws {LLMStructuredError} when none fits after three requests; {@link LLMError} when a request finally failed
 * @throws {CaissonError} `invalid_options` for an unusable schema and other misuse; the signal's reason when it is
 * aborted
 */
export async function generateStructured<T = unknown>(
  options: StructuredOptions<T>,
): Promise<StructuredResult<T>> {
  requireObject('the request', options)
  const { schema, name = 'answer', description = 'The answer.', messages, ...request } = options
  const opened = await open(schema)
  const environment = withoutTools(request)
  const { providers: _providers, skillRoots: _roots, mcpConfig: _mcp, ...rest } = request
  const failures: LLMError[] = []
  const ask: Model = async ({ messages: asked, tools: [tool], toolChoice, responseFormat }, { signal }) => {
    try {
      const response = await generate({
        ...rest,
        environment,
        messages: asked.map(fromChatMessage),
        toolPermission: 'auto',
        ...(tool === undefined ? {} : { tools: { [tool.name]: tool } }),
        ...(toolChoice === undefined ? {} : { toolChoice }),
        ...(responseFormat === undefined ? {} : { responseFormat }),
        abortSignal: signal,
      })
      return { ok: true, value: toTurn(response) }
    } catch (error) {
      if (!(error instanceof LLMError)) throw error
      failures.push(error)
      return { ok: false, error: modelError(error.kind, error.message, error.status, error.retryAfterMs) }
    }
  }
  const answer = await requestStructured<T>({
    model: ask,
    server: serverOf(environment, request),
    messages: toChatMessages(messages),
    name,
    description,
    schema: opened.json,
    hooks: { signal: request.abortSignal ?? new AbortController().signal },
    read: (value) => {
      const checked = opened.check(value)
      return checked.ok ? { ok: true, value: { value: checked.value, corrections: [] } } : checked
    },
  })
  if (answer.ok) {
    const { value, corrections, requests, usage } = answer.value
    return { value, corrections, requests, usage: toUsage(usage) }
  }
  const { kind, message, usage } = answer.error
  if (kind === 'cancelled') request.abortSignal?.throwIfAborted()
  if (kind === 'invalid' || kind === 'refused')
    throw new LLMStructuredError(request.provider, kind, message, toUsage(usage))
  throw failures.at(-1) ?? new Error(message)
}

async function open<T>(schema: z.ZodType<T> | JsonSchema): Promise<AnswerSchema<T>> {
  if (schema instanceof z.ZodType) return openZodSchema(schema)
  const opened = await openSchema(schema)
  if (!opened.ok) throw new CaissonError('invalid_options', opened.error)
  // For a JSON schema only the caller knows the type.
  return opened.value as AnswerSchema<T>
}

/** The environment's provider without tools, since only an answer is wanted. */
function withoutTools(request: Omit<LLMRequest, 'messages'>): LLMEnvironment {
  const environment =
    request.environment === undefined ? cachedEnvironment(request) : checkEnvironment(request.environment)
  return { ...environment, mcpRegistry: new McpRegistry(), builtIns: false }
}

/** One object per model of a provider, as the key of what is remembered of it. */
const servers = new WeakMap<object, Map<string, object>>()

function serverOf(
  { providerStore }: LLMEnvironment,
  { provider, model }: Pick<LLMRequest, 'provider' | 'model'>,
): object {
  const key = providerStore.get(provider).provider
  const models = servers.get(key) ?? new Map<string, object>()
  servers.set(key, models)
  const known = models.get(model) ?? {}
  models.set(model, known)
  return known
}

function fromChatMessage(message: ChatMessage): LLMChatMessage {
  if (message.role === 'tool') return { role: 'tool', tool_call_id: message.callId, content: message.content }
  if (message.role !== 'assistant') return message
  const calls = message.toolCalls.map(({ id, name, argumentsText }) => {
    return { id, type: 'function' as const, function: { name, arguments: argumentsText } }
  })
  return {
    role: 'assistant',
    content: message.content,
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
    ...(message.reasoning === undefined ? {} : { reasoning_content: message.reasoning }),
  }
}

function toTurn({ content, tool_calls: calls = [], assistantMessage, usage, stopKind }: LLMResponse): Turn {
  const words = {
    natural: 'stop',
    tool: 'tool_calls',
    unknown: 'unknown',
    length: 'length',
    content_filter: 'content_filter',
  }
  const none = { inputTokens: 0, outputTokens: 0, reasoningTokens: 0 }
  return {
    text: content,
    reasoning: assistantMessage.reasoning_content ?? '',
    toolCalls: calls.map(({ id, function: { name, arguments: argumentsText } }) => ({
      id,
      name,
      argumentsText,
    })),
    usage: { requests: 1, ...(usage ?? none) },
    finishReason: words[stopKind],
  }
}

function toUsage({ inputTokens, outputTokens, reasoningTokens }: LLMUsage): LLMUsage {
  return { inputTokens, outputTokens, reasoningTokens }
}
