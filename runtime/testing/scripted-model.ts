/**
 * A model that follows a script: for `runTurnLoop` in process, as a provider for `generate` and `stream`, or as an
 * OpenAI-compatible server on loopback. Records requests; fails on any request that the script does not cover.
 */
import { errorMessage } from '#specs/errors.ts'
import { modelError } from '#specs/node/model-protocols/model-error.ts'
import { failure } from '#specs/testing/model-replies.ts'
import {
  type Asked,
  type ModelServer,
  type ServerReply,
  startModelServer,
} from '#specs/testing/model-server.ts'
import type {
  LLMChatMessage,
  LLMResponse,
  LLMToolDefinition,
  Provider,
  ProviderPart,
  ProviderRequest,
} from '../contract/contract.ts'
import { LLMError } from '../providers/errors.ts'
import { type ReadyReply, toParts, toResponse, toServerReply } from './answers.ts'
import type { ScriptedReply } from './replies.ts'
import { makeRequest, readHttpRequest, type ScriptedRequest } from './request.ts'
import { type ReplyScript, type RuleScript, Script } from './script.ts'

export interface ScriptedModel extends AsyncDisposable {
  /** All requests in order, with or without a reply. */
  readonly requests: readonly ScriptedRequest[]
  /**
   * Throws unless every reply and rule was used and every request had a reply; the message lists them.
   * @throws {CaissonError} `script_mismatch`
   */
  assertDone(): void
  /**
   * The model in process, for `runTurnLoop`'s option of the same name.
   * @throws {CaissonError} `script_mismatch` without a reply, LLMError for a scripted failure, and the signal's
   * reason when it is aborted
   */
  readonly callModel: (request: ScriptedCallRequest) => Promise<LLMResponse>
  /**
   * The model in process, as a provider for `generate` and `stream`. A request without a reply fails as
   * `invalid_request`.
   */
  readonly provider: Provider
  /** Starts a server on loopback, once. Returns its base URL, such as `http://127.0.0.1:40123/v1`. */
  listen(): Promise<string>
}

/** The part of its input that `callModel` uses. */
export interface ScriptedCallRequest {
  readonly messages: readonly LLMChatMessage[]
  readonly tools?: readonly LLMToolDefinition[]
  readonly abortSignal?: AbortSignal
  /** Receives text as it arrives. */
  readonly onText?: (text: string) => void
}

type Ask = (request: ScriptedRequest) => Promise<ReadyReply>

/**
 * Creates a model that plays a script.
 * @throws {CaissonError} `invalid_options` for a script that is neither `replies` nor `rules`
 */
export function createScriptedModel(source: ReplyScript | RuleScript): ScriptedModel {
  const script = new Script(source)
  const withIds = countIds()
  const ask: Ask = async (request) => withIds(await script.answer(request))
  let server: Promise<ModelServer> | undefined
  return {
    requests: script.requests,
    assertDone: () => script.assertDone(),
    callModel: async ({ messages, tools = [], abortSignal, onText }) => {
      const index = script.requests.length
      const request = makeRequest({ index, via: 'call', model: '', messages: [...messages], tools })
      const answer = await toResponse(await ask(request), abortSignal, onText)
      if (!answer.ok) throw new LLMError('the scripted model', answer.error)
      return answer.value
    },
    provider: { stream: (request) => streamFor(request, script, ask) },
    listen: async () => {
      server ??= startModelServer((asked) => serve(asked, script, ask))
      return (await server).baseUrl
    },
    [Symbol.asyncDispose]: async () => {
      await (await server)?.[Symbol.asyncDispose]()
    },
  }
}

async function* streamFor(
  { signal, ...asked }: ProviderRequest,
  script: Script,
  ask: Ask,
): AsyncGenerator<readonly ProviderPart[]> {
  try {
    const request = makeRequest({
      ...asked,
      index: script.requests.length,
      via: 'provider',
      messages: [...asked.messages],
    })
    for await (const part of toParts(await ask(request), signal)) yield [part]
  } catch (cause) {
    const error = signal.aborted
      ? modelError('cancelled', 'the request was cancelled')
      : modelError('invalid_request', errorMessage(cause))
    yield [{ type: 'error', error }]
  }
}

/** Assigns unique ids to calls without one. */
function countIds(): (reply: ScriptedReply) => ReadyReply {
  let count = 0
  return (reply) => ({
    ...reply,
    calls: (reply.calls ?? []).map((call) => ({ ...call, id: call.id ?? `call-${++count}` })),
  })
}

const modelList = {
  object: 'list',
  data: [{ id: 'scripted', object: 'model', created: 0, owned_by: 'caisson' }],
}

async function serve(asked: Asked, script: Script, ask: Ask): Promise<ServerReply> {
  const path = asked.path.split('?', 1)[0] ?? ''
  if (asked.method === 'GET' && path.endsWith('/models'))
    return { body: JSON.stringify(modelList), headers: { 'content-type': 'application/json' } }
  if (asked.method !== 'POST' || !path.endsWith('/chat/completions')) {
    const problem = `${asked.method} ${asked.path}: the scripted model answers POST …/chat/completions alone`
    script.noteProblem(problem)
    return failure(404, problem)
  }
  try {
    return toServerReply(await ask(readHttpRequest(asked, script.requests.length)))
  } catch (cause) {
    // Clients do not retry a bad request.
    return failure(400, errorMessage(cause))
  }
}
