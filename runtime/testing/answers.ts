/** A scripted reply in each output form: parts of a stream, a complete response, an HTTP response. */
import { setTimeout as sleep } from 'node:timers/promises'
import { errorFromResponse, type ModelError, modelError } from '#specs/node/model-protocols/model-error.ts'
import type { Result } from '#specs/protocol/error.ts'
import { failure as serverFailure, reply as serverReply } from '#specs/testing/model-replies.ts'
import type { ServerReply } from '#specs/testing/model-server.ts'
import type { LLMResponse, LLMToolCall, LLMUsage, ProviderPart } from '../contract/contract.ts'
import { argumentsOf, type ScriptedCall, type ScriptedReply, textOf } from './replies.ts'

/** A reply whose calls have ids. */
export interface ReadyReply extends ScriptedReply {
  readonly calls: readonly (ScriptedCall & { readonly id: string })[]
}

const finishReasons = {
  natural: 'stop',
  tool: 'tool_calls',
  length: 'length',
  content_filter: 'content_filter',
} as const

const someUsage: LLMUsage = { inputTokens: 10, outputTokens: 5, reasoningTokens: 0 }

function stopOf(reply: ReadyReply): keyof typeof finishReasons {
  return reply.stop ?? (reply.calls.length > 0 ? 'tool' : 'natural')
}

/** Why the reply is a failure; null when it is complete. A reply that hangs is handled elsewhere. */
function failureOf(reply: ReadyReply): ModelError | null {
  if (reply.broken === 'cut') return modelError('truncated', 'the connection broke within the answer')
  if (reply.error === undefined) return null
  const { status, message, retryAfterMs } = reply.error
  const retryAfter = retryAfterMs === undefined ? null : String(retryAfterMs / 1_000)
  return errorFromResponse(status, JSON.stringify({ error: { message, code: status } }), retryAfter)
}

/** The reply as a provider streams it; an abort ends waiting and the stream. */
export async function* toParts(reply: ReadyReply, signal?: AbortSignal): AsyncGenerator<ProviderPart> {
  if (reply.delayMs !== undefined) await wait(reply.delayMs, signal)
  const { text = [], reasoning, calls, error } = reply
  if (error === undefined) {
    if (reasoning !== undefined) yield { type: 'reasoning', text: reasoning }
    for (const piece of typeof text === 'string' ? [text] : text) yield { type: 'text', text: piece }
    for (const [index, call] of calls.entries()) {
      const { id, name } = call
      yield { type: 'tool-call-delta', fragment: { index, id, name, argumentsText: argumentsOf(call) } }
    }
    if (reply.broken === 'hang') await wait(2 ** 31 - 1, signal)
  }
  const failed = failureOf(reply)
  if (failed !== null) return yield { type: 'error', error: failed }
  yield { type: 'usage', usage: { ...someUsage, ...reply.usage } }
  yield { type: 'finish', reason: finishReasons[stopOf(reply)] }
}

async function wait(delayMs: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted()
  try {
    await sleep(delayMs, undefined, signal === undefined ? {} : { signal })
  } catch (cause) {
    signal?.throwIfAborted()
    throw cause
  }
}

/** The complete response, or the reply's failure. */
export async function toResponse(
  reply: ReadyReply,
  signal?: AbortSignal,
  onText?: (text: string) => void,
): Promise<Result<LLMResponse, ModelError>> {
  for await (const part of toParts(reply, signal)) {
    if (part.type === 'error') return { ok: false, error: part.error }
    if (part.type === 'text') onText?.(part.text)
  }
  const content = textOf(reply)
  const toolCalls = reply.calls.map(
    (call): LLMToolCall => ({
      id: call.id,
      type: 'function',
      function: { name: call.name, arguments: argumentsOf(call) },
    }),
  )
  const withCalls = toolCalls.length > 0 ? { tool_calls: toolCalls } : {}
  const thoughts = reply.reasoning === undefined ? {} : { reasoning_content: reply.reasoning }
  const value: LLMResponse = {
    type: toolCalls.length > 0 ? 'tool_calls' : 'text',
    content,
    ...withCalls,
    assistantMessage: { role: 'assistant', content, ...withCalls, ...thoughts },
    usage: { ...someUsage, ...reply.usage },
    stopKind: stopOf(reply),
  }
  return { ok: true, value }
}

/** The reply as an OpenAI-compatible server sends it. */
export function toServerReply(reply: ReadyReply): ServerReply {
  const delay = reply.delayMs === undefined ? {} : { headAfterMs: reply.delayMs }
  if (reply.error !== undefined) {
    const { status, message, retryAfterMs } = reply.error
    const headers = retryAfterMs === undefined ? {} : { 'retry-after': String(retryAfterMs / 1_000) }
    return { ...serverFailure(status, message, 'openai', headers), ...delay }
  }
  const { text, reasoning, broken } = reply
  const { inputTokens, outputTokens, reasoningTokens } = { ...someUsage, ...reply.usage }
  const answer = serverReply({
    ...(text === undefined ? {} : { text }),
    ...(reasoning === undefined ? {} : { reasoning }),
    calls: reply.calls.map((call) => ({ id: call.id, name: call.name, arguments: argumentsOf(call) })),
    finishReason: finishReasons[stopOf(reply)],
    usage: {
      prompt_tokens: inputTokens,
      completion_tokens: outputTokens,
      completion_tokens_details: { reasoning_tokens: reasoningTokens },
    },
    open: broken !== undefined,
  })
  if (broken === undefined) return { ...answer, ...delay }
  const { whole = '' } = answer
  return { ...answer, whole: whole.slice(0, whole.length >> 1), ...delay, after: broken }
}
