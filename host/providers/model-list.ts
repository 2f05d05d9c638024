/**
 * The models that a server lists. One request, bounded in time and size; what is listed may still be refused to a key, so
 * a list proves nothing of it.
 */
import { request as send } from 'undici'
import * as z from 'zod'
import { modelsUrl } from '#specs/node/model-protocols/server-kinds.ts'
import type { Result } from '#specs/protocol/error.ts'
import { parseJson } from '../files/json.ts'
import type { Network } from '../net/network.ts'
import { describeFailure, providerHeaders, readUpstreamError } from './http-exchange.ts'
import type { ModelProvider } from './providers.ts'

export interface ListedModel {
  readonly id: string
  /** By the server's word; absent: it does not say. */
  readonly contextTokens?: number
}

const timeoutMs = 10_000
const listMaxBytes = 8 * 1024 * 1024
const modelsMaxCount = 5_000

const Id = z.string().regex(/^[\x21-\x7e]{1,200}$/)
const Tokens = z.int().min(1).max(1e9).optional().catch(undefined)
/** Names of the context size: vLLM, OpenRouter, Mistral, LM Studio; in `meta` llama.cpp, that of one request. */
const ListedRow = z.object({
  id: Id,
  max_model_len: Tokens,
  context_length: Tokens,
  max_context_length: Tokens,
  context_window: Tokens,
  meta: z.object({ n_ctx: Tokens }).optional().catch(undefined),
})
const GoogleRow = z.object({
  name: Id,
  inputTokenLimit: Tokens,
  supportedGenerationMethods: z.array(z.string()).optional().catch(undefined),
})
const List = z.object({
  data: z.array(z.unknown()).max(modelsMaxCount).optional(),
  models: z.array(z.unknown()).max(modelsMaxCount).optional(),
})

/** An error says why the list cannot be read, without the key. */
export async function listModels(
  provider: ModelProvider & { readonly baseUrl: string },
  network: Network,
): Promise<Result<readonly ListedModel[], string>> {
  const { kind = 'openai-compatible' } = provider
  const timeouts = { firstByteTimeoutMs: timeoutMs, idleTimeoutMs: timeoutMs }
  const dispatcher = network.dispatcher({ connectTimeoutMs: timeoutMs, headersTimeout: timeoutMs })
  const signal = AbortSignal.timeout(timeoutMs)
  try {
    const headers = { accept: 'application/json', ...providerHeaders(provider) }
    const url = modelsUrl({ ...provider, kind })
    const response = await send(url, { dispatcher, method: 'GET', headers, signal })
    const body = await readBounded(response.body)
    if (body === null) return { ok: false, error: `its list is longer than ${listMaxBytes} bytes` }
    if (response.statusCode !== 200) {
      if (response.statusCode < 400) return { ok: false, error: `it answered ${response.statusCode}` }
      return { ok: false, error: readUpstreamError(response.statusCode, body, provider).message }
    }
    return readList(parseJson(body), kind === 'google')
  } catch (cause) {
    if (signal.aborted) return { ok: false, error: `no answer within ${timeoutMs / 1000} s` }
    return { ok: false, error: describeFailure(cause, provider.baseUrl, timeouts).message }
  } finally {
    await dispatcher.destroy()
  }
}

async function readBounded(body: AsyncIterable<Uint8Array>): Promise<string | null> {
  const parts: Uint8Array[] = []
  let bytes = 0
  for await (const part of body) {
    bytes += part.byteLength
    if (bytes > listMaxBytes) return null
    parts.push(part)
  }
  return Buffer.concat(parts).toString('utf8')
}

function readList(value: unknown, isGoogle: boolean): Result<readonly ListedModel[], string> {
  const list = List.safeParse(value).data
  const rows = isGoogle ? list?.models : list?.data
  if (rows === undefined) return { ok: false, error: 'it answered with something that is no list of models' }
  const models = rows.flatMap((row) => (isGoogle ? readGoogleRow(row) : readRow(row)))
  const known = new Map(models.map((model) => [model.id, model]))
  return { ok: true, value: [...known.values()] }
}

function readRow(row: unknown): ListedModel[] {
  const read = ListedRow.safeParse(row).data
  if (read === undefined) return []
  const { id } = read
  const contextTokens =
    read.max_model_len ??
    read.context_length ??
    read.max_context_length ??
    read.context_window ??
    read.meta?.n_ctx
  return [contextTokens === undefined ? { id } : { id, contextTokens }]
}

/** Only models that answer requests; others make vectors, pictures, sound. */
function readGoogleRow(row: unknown): ListedModel[] {
  const read = GoogleRow.safeParse(row).data
  if (read?.supportedGenerationMethods?.includes('generateContent') === false || read === undefined) return []
  const { name, inputTokenLimit: contextTokens } = read
  const id = name.replace(/^models\//, '')
  return [contextTokens === undefined ? { id } : { id, contextTokens }]
}

/** Why a model of the list is used where nobody named one. */
export interface PickedModel {
  readonly model: string
  readonly why: string
}

/**
 * The first preferred model that the server lists, else its only one. Null where somebody has to choose.
 * @param gone ids that the server said are not there for this key
 */
export function pickModel(
  listed: readonly ListedModel[],
  preferred: readonly string[],
  gone: readonly string[] = [],
): PickedModel | null {
  const ids = listed.map(({ id }) => id).filter((id) => !gone.includes(id))
  const first = preferred.find((id) => ids.includes(id))
  if (first !== undefined)
    return { model: first, why: 'the first of the preferred models that its server lists' }
  const [only] = ids
  return only !== undefined && ids.length === 1 ? { model: only, why: 'the only model of its server' } : null
}
