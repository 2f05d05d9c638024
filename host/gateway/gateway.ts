/**
 * The guest's only network access: an exact table of paths, the model routes, a token budget, and a refusal with a
 * reason for everything else. Only validated fields of a guest's request reach an upstream.
 */
import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2'
import type { RequestSource } from '#specs/protocol/model-request.ts'
import type { Usage } from '#specs/protocol/task.ts'
import { gatewayError, type WireError } from '../net/gateway-error.ts'
import type { Network } from '../net/network.ts'
import { createOfflineUpstream } from '../offline-model/upstream.ts'
import type { CapabilityCache } from '../providers/capability-cache.ts'
import { createRunUpstream } from '../providers/fallback.ts'
import { createHttpUpstream, type UpstreamTimeouts } from '../providers/http-upstream.ts'
import type { ModelHolds } from '../providers/model-holds.ts'
import type { ModelProvider } from '../providers/providers.ts'
import type { SharedKeys } from '../providers/shared-keys.ts'
import type { Upstream } from '../providers/upstream.ts'
import type { Budget, BudgetLimits } from './budget.ts'
import { createEmbeddingsRoute, type EmbeddingModel, embeddingsPath } from './embeddings-route.ts'
import { closedError, createModelRoute, keysOf, type ModelHooks } from './model-route.ts'
import { sendError } from './relay.ts'
import { type RequestedModel, RequestReport, type RequestSink, readSource } from './request-report.ts'
import type { GatewayServices, ServeStream } from './services.ts'

export type { GatewayServices, ServeStream }

/** Host name of the model route in the guest: `http://gateway/v1`. */
export const gatewayAuthority = 'gateway'

/** A request that no policy allows. */
export interface DeniedRequest {
  /** Method and address from the guest, at most one line. */
  readonly target: string
  readonly reason: string
}

interface GatewayLogger {
  info(fields: object, text: string): void
  warn(fields: object, text: string): void
}

export interface GatewayOptions extends RequestSink {
  readonly provider: ModelProvider
  /** Asked in this order where the provider's model cannot answer. Absent: none. */
  readonly fallbacks?: readonly ModelProvider[]
  /** What steps and sub-agents may ask for, by name. Absent: nothing, and every request is for the provider's model. */
  readonly stepModels?: ReadonlyMap<string, ModelProvider>
  /** Another name of the provider's model, which an agent that continues a run may have. */
  readonly ownName?: string
  readonly runId: string
  /** Model budget of the run. */
  readonly limits: BudgetLimits
  /** The budget that it is a part of. Absent: it is a whole. */
  readonly within?: Budget
  /** Before the ids of its model requests. Absent: nothing. */
  readonly idPrefix?: string
  /** The host's connection to the model server. Absent: direct. */
  readonly network?: Network
  /** Known capabilities of models. Absent: learned again. */
  readonly capabilityCache?: CapabilityCache
  /** Absent: what other processes learned of the key is not known. */
  readonly modelHolds?: ModelHolds
  /** Absent: no other host uses the keys. */
  readonly sharedKeys?: SharedKeys
  /** Check each request to the model and each answer. Absent: no checks. */
  readonly modelHooks?: ModelHooks
  /** The embedding model. Absent: none. */
  readonly embeddings?: EmbeddingModel
  /** Other services. Absent: everything except the model route is refused. */
  readonly services?: GatewayServices
  /** Wraps the upstream for recording and replay. `keys` must be removed from the recording. */
  readonly wrapUpstream?: (upstream: Upstream, keys: readonly string[]) => Upstream
  readonly onDenied: (denied: DeniedRequest) => void
  readonly logger: GatewayLogger
  readonly timeouts?: Partial<UpstreamTimeouts & { readonly requestBodyTimeoutMs: number }>
  /** Monotonic clock in milliseconds. */
  readonly now?: () => number
}

export interface Gateway extends AsyncDisposable {
  /** Serves one HTTP/2 stream of the guest; never throws, and always ends the stream. */
  handleStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void
  /** Whether a request is in progress. */
  isBusy(): boolean
  /** Sum over completed exchanges. */
  usage(): Usage
  /** What its requests may spend. */
  readonly budget: Budget
  /** Ends open requests, and refuses later ones. */
  close(): Promise<void>
}

export const defaultTimeouts = {
  firstByteTimeoutMs: 300_000,
  idleTimeoutMs: 180_000,
  queueTimeoutMs: 240_000,
  requestBodyTimeoutMs: 30_000,
}
/** Maximum reported refusals of one run; a guest can cause any number. */
const deniedMaxReports = 256
const noPolicy = 'refused: no egress policy'

export function createGateway(options: GatewayOptions): Gateway {
  const { provider, logger } = options
  const timeouts = { ...defaultTimeouts, ...options.timeouts }
  const openModel = (model: ModelProvider): Upstream =>
    model.baseUrl === null
      ? createOfflineUpstream()
      : createHttpUpstream({
          provider: { ...model, baseUrl: model.baseUrl },
          timeouts,
          runId: options.runId,
          log: (fields, text) => logger.info(fields, text),
          ...(options.network === undefined ? {} : { network: options.network }),
          ...(options.capabilityCache === undefined ? {} : { capabilityCache: options.capabilityCache }),
          ...(options.modelHolds === undefined ? {} : { modelHolds: options.modelHolds }),
          ...(options.sharedKeys === undefined ? {} : { sharedKeys: options.sharedKeys }),
        })
  const now = options.now ?? (() => performance.now())
  const { fallbacks = [], stepModels = new Map<string, ModelProvider>() } = options
  const all = [provider, ...fallbacks, ...stepModels.values()]
  const server = all.length === 1 ? openModel(provider) : openModels()
  const upstream = options.wrapUpstream?.(server, keysOf(all)) ?? server
  const closing = new AbortController()
  const open = new Set<Promise<void>>()
  let denied = 0

  const sink: RequestSink = {
    ...(options.onModelWait === undefined ? {} : { onModelWait: options.onModelWait }),
    onModelEvent: (event) => {
      options.onModelEvent(event)
      if (event.type === 'model-end') logger.info({ runId: options.runId, ...event }, 'model exchange')
    },
  }
  let requests = 0
  const openReport = (source: RequestSource, models: RequestedModel): RequestReport => {
    requests += 1
    return new RequestReport(`model-${options.idPrefix ?? ''}${requests}`, source, models, sink, now)
  }

  function deny(stream: ServerHttp2Stream, target: string): void {
    denied += 1
    const reason = denied === deniedMaxReports ? `${noPolicy}; further refusals are not listed` : noPolicy
    if (denied <= deniedMaxReports) options.onDenied({ target, reason })
    sendError(
      stream,
      gatewayError(
        'egress_denied',
        `${noPolicy}. ${target} is not the model route, and this VM has no other network access. Continue without the network.`,
      ),
    )
  }

  const model = createModelRoute({
    provider,
    fallbacks,
    stepModels,
    ...(options.ownName === undefined ? {} : { ownName: options.ownName }),
    upstream,
    limits: options.limits,
    ...(options.within === undefined ? {} : { within: options.within }),
    requestBodyTimeoutMs: timeouts.requestBodyTimeoutMs,
    guestTimeoutMs: timeouts.idleTimeoutMs,
    ...(options.modelHooks === undefined ? {} : { hooks: options.modelHooks }),
    report: (headers, stepModel) =>
      openReport(readSource(headers), stepModel === undefined ? {} : { stepModel }),
    now,
  })
  const embed = createEmbeddingsRoute({
    ...(options.embeddings === undefined ? {} : { embeddings: options.embeddings }),
    budget: model.budget,
    ...(options.modelHooks === undefined ? {} : { hooks: options.modelHooks }),
    report: (model) => openReport({}, model === undefined ? {} : { model }),
    now,
  })

  async function serve(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): Promise<void> {
    const gone = new AbortController()
    const signal = AbortSignal.any([gone.signal, closing.signal])
    stream.on('error', () => {})
    stream.once('close', () => gone.abort())
    try {
      if (closing.signal.aborted) return sendError(stream, closedError)
      const route = findRoute(headers, options.services)
      if (route.kind === 'refused') return sendError(stream, route.error)
      if (route.kind === 'egress') {
        const { services } = options
        return services === undefined
          ? deny(stream, route.target)
          : await services.egress(stream, headers, signal)
      }
      if (route.kind === 'service') return await route.serve(stream, headers, signal)
      if (route.kind === 'embeddings') return await embed(stream, headers, signal)
      if (route.kind === 'models') return sendModels(stream, [provider.model, ...stepModels.keys()])
      await model.serve(stream, headers, signal)
    } catch (cause) {
      // An internal error: the guest learns that it failed, the log has the cause.
      logger.warn(
        { runId: options.runId, error: cause instanceof Error ? cause.stack : 'unknown' },
        'gateway failed',
      )
      sendError(stream, gatewayError('upstream_broken', 'The gateway failed on this request.'))
    } finally {
      // Answered before the body was read: discard the rest.
      if (!stream.destroyed && !stream.readableEnded) stream.resume()
    }
  }

  function openModels(): Upstream {
    const opened = new Map<string, { readonly model: string; readonly upstream: Upstream }>()
    const open = (one: ModelProvider) => {
      const place = JSON.stringify([one.baseUrl, one.model])
      const known = opened.get(place) ?? { model: one.model, upstream: openModel(one) }
      opened.set(place, known)
      return known
    }
    const own = open(provider)
    const steps = new Map([...stepModels].map(([name, one]) => [name, open(one)]))
    return createRunUpstream({ own, steps, fallbacks: fallbacks.map(open) }, now)
  }

  async function close(): Promise<void> {
    closing.abort()
    await Promise.allSettled(open)
    await upstream.close()
    await options.embeddings?.embedder.close()
  }

  return {
    handleStream(stream, headers) {
      const work = serve(stream, headers).finally(() => open.delete(work))
      open.add(work)
    },
    isBusy: () => open.size > 0,
    usage: model.usage,
    budget: model.budget,
    close,
    [Symbol.asyncDispose]: close,
  }
}

type OwnRoute = 'chat' | 'models' | 'embeddings'
type Route =
  | { kind: OwnRoute }
  | { kind: 'service'; serve: ServeStream }
  | { kind: 'egress'; target: string }
  | { kind: 'refused'; error: WireError }

const routes: Readonly<Record<string, { method: string; kind: OwnRoute }>> = {
  '/v1/chat/completions': { method: 'POST', kind: 'chat' },
  '/v1/models': { method: 'GET', kind: 'models' },
  [embeddingsPath]: { method: 'POST', kind: 'embeddings' },
}

/** Compares the guest's path with the exact table; never resolves it. */
function findRoute(headers: IncomingHttpHeaders, services?: GatewayServices): Route {
  const method = headers[':method'] ?? ''
  const path = headers[':path'] ?? ''
  const authority = headers[':authority'] ?? ''
  const scheme = headers[':scheme']
  if (
    method === 'CONNECT' ||
    authority !== gatewayAuthority ||
    !path.startsWith('/') ||
    path.startsWith('//')
  ) {
    const address =
      method === 'CONNECT' || path.includes('://') ? authority || path : `${scheme}://${authority}${path}`
    return { kind: 'egress', target: printable(`${method} ${address}`) }
  }
  const service =
    services !== undefined && Object.hasOwn(services.paths, path) ? services.paths[path] : undefined
  const own = Object.hasOwn(routes, path) ? routes[path] : undefined
  const route = own ?? service
  if (route === undefined) {
    return {
      kind: 'refused',
      error: gatewayError('not_found', `The gateway has no path ${printable(path)}.`),
    }
  }
  if (route.method !== method) {
    const text = `${path} takes ${route.method}, not ${printable(method)}.`
    return { kind: 'refused', error: gatewayError('method_not_allowed', text) }
  }
  return 'serve' in route ? { kind: 'service', serve: route.serve } : { kind: route.kind }
}

function sendModels(stream: ServerHttp2Stream, names: readonly string[]): void {
  const body = JSON.stringify({
    object: 'list',
    data: names.map((id) => ({ id, object: 'model', created: 0, owned_by: 'caisson' })),
  })
  stream.respond({
    ':status': 200,
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
  })
  stream.end(body)
}

/** Sanitizes untrusted text for a journal line. */
function printable(text: string): string {
  return text.replaceAll(/[^\x20-\x7e]/g, '?').slice(0, 300)
}
