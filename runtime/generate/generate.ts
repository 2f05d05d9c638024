/**
 * Requests one answer from a model, with tools, complete or streamed; both use the same code. Failures are thrown as
 * {@link LLMError}; an aborted call throws its signal's reason.
 */

import { CaissonError, requireObject, requireSignal } from '#specs/errors.ts'
import { Adaptation } from '#specs/node/provider-quirks/adaptation.ts'
import { mergeReports, type ServerReport } from '#specs/node/provider-quirks/capabilities.ts'
import { imagesMaxCount } from '#specs/protocol/image.ts'
import type {
  LLMChatMessage,
  LLMResponse,
  LLMStreamChunk,
  ProviderRequest,
  ReasoningEffort,
  ToolPermission,
} from '../contract/contract.ts'
import {
  type ConvenienceOptions,
  checkEffort,
  checkPermission,
  environmentOf,
  type LLMEnvironment,
} from '../environment/environment.ts'
import { resolveTools, type ToolSelection, type ToolSet } from '../environment/tool-set.ts'
import { requestWithRetry, StreamingMode, type TurnHooks } from '../llm/model.ts'
import { untilAborted } from '../processes/until-aborted.ts'
import { LLMError } from '../providers/errors.ts'
import { checkImages } from './images.ts'
import { Queue } from './queue.ts'
import { toResponse } from './response.ts'

export interface LLMRequest extends Omit<ToolSelection, 'toolPermission'>, ConvenienceOptions {
  /** Absent: created from `providers`, `skillRoots`, `mcpConfig` and environment variables, and cached. */
  readonly environment?: LLMEnvironment
  /** Name of a provider in the environment, such as `openai`. */
  readonly provider: string
  readonly model: string
  readonly messages: readonly LLMChatMessage[]
  /** Absent: the environment's default. */
  readonly reasoningEffort?: ReasoningEffort
  /** Absent: the environment's default. */
  readonly toolPermission?: ToolPermission
  readonly abortSignal?: AbortSignal
  /** Own name of a tool. Absent: the model chooses. */
  readonly toolChoice?: ProviderRequest['toolChoice']
  readonly responseFormat?: ProviderRequest['responseFormat']
  /** Absent: the provider's default, else 16,384. */
  readonly maxTokens?: number
  readonly temperature?: number
  /**
   * Whether the provider's own server searches the web for this answer: `anthropic`, `google`, and `openai` with models that
   * can. Absent: no.
   */
  readonly webSearch?: boolean
}

/**
 * Returns the model's answer. Does not execute its calls: see {@link executeTool}.
 * @throws {LLMError} when the request finally failed; {@link LLMConfigurationError} for a provider that is not
 * configured
 * @throws {CaissonError} `invalid_options` for misuse; the signal's reason when it is aborted
 */
export async function generate(request: LLMRequest): Promise<LLMResponse> {
  requireObject('the request', request)
  requireSignal('abortSignal', request.abortSignal)
  return await ask(request, {})
}

/**
 * Streams the same answer. A failed request is retried until part of its answer was yielded. Leaving the generator
 * ends the request.
 */
export async function* stream(request: LLMRequest): AsyncGenerator<LLMStreamChunk, LLMResponse> {
  requireObject('the request', request)
  requireSignal('abortSignal', request.abortSignal)
  const left = new AbortController()
  const abortSignal =
    request.abortSignal === undefined ? left.signal : AbortSignal.any([request.abortSignal, left.signal])
  const told = new Queue<LLMStreamChunk>()
  const answer = ask(
    { ...request, abortSignal },
    {
      onText: (content) => told.add({ content }),
      onReasoning: (reasoningContent) => told.add({ reasoningContent }),
      mayRetry: () => !told.hasAny,
    },
  ).finally(() => told.end())
  // Awaited below, unless the reader leaves first.
  answer.catch(() => undefined)
  try {
    yield* told
    return await answer
  } finally {
    left.abort()
  }
}

async function ask(request: LLMRequest, hooks: Omit<TurnHooks, 'signal'>): Promise<LLMResponse> {
  checkRequest(request)
  const environment = environmentOf(request)
  const signal = request.abortSignal ?? new AbortController().signal
  signal.throwIfAborted()
  const { provider, maxAttempts } = environment.providerStore.get(request.provider)
  if (request.webSearch === true && provider.hasWebSearch !== true)
    throw new CaissonError(
      'invalid_options',
      `the provider ${request.provider} has no web search of its own; give complete() a function as webSearch`,
    )
  const toolPermission = checkPermission(request.toolPermission ?? environment.defaults.toolPermission)
  const tools = await untilAborted(resolveTools(environment, { ...request, toolPermission }), signal)
  const sent = toProviderRequest(request, environment, tools, signal)
  const reports = reportsOf(provider)
  // The application chooses model and images: what the model cannot see is the server's error, not a note in its place.
  const adaptation = new Adaptation(
    request.model,
    { ...reports.get(request.model), maxImages: imagesMaxCount },
    unchangedFields,
  )
  const open = (streamed: boolean) => provider.stream({ ...sent, streamed, adaptation })
  const form = { streaming: new StreamingMode(), adaptation }
  const policy = maxAttempts === undefined ? {} : { maxAttempts }
  const turn = await requestWithRetry(open, sent, form, policy, { ...hooks, signal })
  signal.throwIfAborted()
  if (!turn.ok) throw new LLMError(request.provider, turn.error)
  remember(reports, request.model, adaptation.learned)
  return toResponse(turn.value, tools)
}

function toProviderRequest(
  request: LLMRequest,
  environment: LLMEnvironment,
  tools: ToolSet,
  signal: AbortSignal,
): ProviderRequest {
  const { model, toolChoice, responseFormat, maxTokens, temperature } = request
  const messages = withNamedCalls(request.messages)
  return {
    model,
    messages: tools.hasRenamed ? messages.map((message) => withSafeNames(message, tools)) : messages,
    tools: tools.definitions,
    reasoningEffort: checkEffort(request.reasoningEffort ?? environment.defaults.reasoningEffort),
    ...(toolChoice === undefined ? {} : { toolChoice: toSafeChoice(toolChoice, tools) }),
    ...(responseFormat === undefined ? {} : { responseFormat }),
    ...(maxTokens === undefined ? {} : { maxTokens }),
    ...(temperature === undefined ? {} : { temperature }),
    ...(request.webSearch === true ? { webSearch: true } : {}),
    signal,
  }
}

function toSafeChoice(
  choice: NonNullable<ProviderRequest['toolChoice']>,
  tools: ToolSet,
): NonNullable<ProviderRequest['toolChoice']> {
  if (typeof choice === 'string') return choice
  if (tools.find(choice.name) === undefined)
    throw new CaissonError(
      'invalid_options',
      `toolChoice names ${JSON.stringify(choice.name)}, which is not among the offered tools`,
    )
  return { name: tools.toSafe(choice.name) }
}

function withSafeNames(message: LLMChatMessage, tools: ToolSet): LLMChatMessage {
  if (message.tool_calls === undefined) return message
  const calls = message.tool_calls.map((call) => {
    const name = tools.toSafe(call.function.name)
    return name === call.function.name ? call : { ...call, function: { ...call.function, name } }
  })
  return { ...message, tool_calls: calls }
}

function checkRequest({ provider, model, messages, webSearch = false }: LLMRequest): void {
  if (typeof webSearch !== 'boolean')
    throw new CaissonError('invalid_options', 'expected webSearch as true or false')
  if (typeof provider !== 'string' || provider === '')
    throw new CaissonError('invalid_options', 'expected a provider by its name')
  if (typeof model !== 'string' || model === '')
    throw new CaissonError('invalid_options', 'expected a model by its name')
  if (!Array.isArray(messages)) throw new CaissonError('invalid_options', 'expected messages as a list')
  checkImages(messages)
}

/** An answer without these would be of another form; `generateStructured` asks for it in another way instead. */
const unchangedFields = ['response_format', 'tool_choice', 'images'] as const

/** Reports of each provider's models, for later calls. */
const allReports = new WeakMap<object, Map<string, ServerReport>>()
const modelsMaxCount = 200

function reportsOf(provider: object): Map<string, ServerReport> {
  const reports = allReports.get(provider) ?? new Map<string, ServerReport>()
  allReports.set(provider, reports)
  return reports
}

/** Keeps what the answer has proven, beside what other calls have learned meanwhile. */
function remember(reports: Map<string, ServerReport>, model: string, learned: ServerReport): void {
  if (Object.keys(learned).length === 0) return
  const known = reports.get(model)
  if (known === undefined && reports.size >= modelsMaxCount) reports.clear()
  reports.set(model, mergeReports(known, learned))
}

/** Returns the same messages when every call has a name. */
function withNamedCalls(messages: readonly LLMChatMessage[]): readonly LLMChatMessage[] {
  if (messages.every(({ tool_calls: calls = [] }) => calls.every(hasName))) return messages
  const kept: LLMChatMessage[] = []
  let dropped: ReadonlySet<string> = new Set()
  for (const message of messages) {
    const { role, tool_calls: calls = [], tool_call_id: id = '' } = message
    if (role === 'tool' && dropped.has(id)) continue
    if (role !== 'assistant') {
      kept.push(message)
      continue
    }
    const named = calls.filter(hasName)
    const namedIds = new Set(named.map((call) => call.id))
    dropped = new Set(calls.map((call) => call.id).filter((one) => !namedIds.has(one)))
    kept.push(named.length === calls.length ? message : withCalls(message, named))
  }
  return kept
}

function withCalls(
  message: LLMChatMessage,
  calls: NonNullable<LLMChatMessage['tool_calls']>,
): LLMChatMessage {
  const { tool_calls: _calls, ...rest } = message
  return calls.length === 0 ? rest : { ...rest, tool_calls: calls }
}

function hasName({ function: { name } }: NonNullable<LLMChatMessage['tool_calls']>[number]): boolean {
  return typeof name === 'string' && name.trim() !== ''
}
