/** Builds what one run reaches through the host: its gateway, its egress and the gateway's own services. */
import { once } from 'node:events'
import type { HostEvent } from '#specs/protocol/event.ts'
import { mcpOfferTool } from '#specs/protocol/extension.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import type { RunLimits } from '#specs/protocol/task.ts'
import { createConnector } from '../../egress/connect.ts'
import type { Egress } from '../../egress/egress.ts'
import { accessTool, EgressApprovals } from '../../egress/egress-approvals.ts'
import { PersistentGrants } from '../../egress/persistent-grants.ts'
import type { EgressPolicy } from '../../egress/policy.ts'
import { readRule } from '../../egress/rules.ts'
import { type AccessAnswers, RunEgress } from '../../egress/run-egress.ts'
import { priceOf } from '../../gateway/budget.ts'
import type { EmbeddingModel } from '../../gateway/embeddings-route.ts'
import { createGateway, defaultTimeouts, type Gateway } from '../../gateway/gateway.ts'
import { keysOf, type ModelHooks } from '../../gateway/model-route.ts'
import { createEgressServer } from '../../gateway/serve-egress.ts'
import { serveMemory, serveSkills, serveWeb } from '../../gateway/serve-tools.ts'
import type { HooksDecision, RunHooks } from '../../hooks/run-hooks.ts'
import type { BoundedLog } from '../../journal/bounded-log.ts'
import { McpTrust } from '../../mcp/mcp-trust.ts'
import { MemoryService } from '../../memory/memory-service.ts'
import type { NoteStore } from '../../memory/note-store.ts'
import type { GatewayErrorCode } from '../../net/gateway-error.ts'
import { CapabilityCache } from '../../providers/capability-cache.ts'
import { createHttpEmbedder } from '../../providers/embedder.ts'
import { ModelHolds } from '../../providers/model-holds.ts'
import type { Upstream } from '../../providers/upstream.ts'
import { type Recorder, recordEmbedder } from '../../recording/recorder.ts'
import { replayEmbedder } from '../../recording/replay.ts'
import { createRedaction } from '../../secrets/redaction.ts'
import type { Web } from '../../web/web.ts'
import { createWeb, recordWeb, replayWeb } from '../../web/web.ts'
import type { ResolvedRun } from '../resolved-run.ts'
import type { GuestParts } from './guest-parts.ts'
import { RunRequests } from './run-requests.ts'

export interface RunGateway {
  readonly gateway: Gateway
  readonly requests: RunRequests
  /** Closes all connections. */
  close(): Promise<void>
}

/** Parts of the run that its gateway writes to or asks. */
interface RunParts
  extends Pick<
    GuestParts,
    'record' | 'approvals' | 'claims' | 'hooks' | 'hostCallResults' | 'earlier' | 'subAgent' | 'onModelLimit'
  > {
  readonly log: BoundedLog
  readonly recorder: Recorder
  /** Writes an event to the journal; resolves with whether it is written, never rejects. */
  readonly note: (event: HostEvent) => Promise<boolean>
}

export function openRunGateway(plan: ResolvedRun, parts: RunParts): RunGateway {
  const { log, recorder, approvals, claims, note, record, hooks, subAgent } = parts
  const { provider, runId, limits, recording } = plan
  const policy = recording === undefined ? plan.egress : nothingOut
  // Answers in a replay are of its run, and nothing else gets them.
  const { folders, replays } = plan
  const lasting = new PersistentGrants(
    replays === undefined ? folders : { ...folders, home: record.paths.directory },
  )
  // A replayed run asks the same questions, or the agent would get different results.
  const access = new EgressApprovals({ runId, policy: plan.egress, approvals, lasting })
  const connect = createConnector({ network: plan.network })
  const egress = new RunEgress({ policy, access, connect, note })
  // Nobody can read a program's request before it is sent; the web tools only fetch and search.
  const ofPrograms =
    plan.mode === 'plan' ? new RunEgress({ policy: onlyPlans, access, connect, note }) : egress
  const write = (level: 'info' | 'warn') => (fields: object, message: string) =>
    log.write({ at: Date.now(), from: 'gateway', level, message, ...fields })
  const warn = (text: string): void => write('warn')({ runId }, text)
  plan.secrets.onUnreadable(warn)
  const web = webOf(plan, egress, warn)
  const embeddings = embeddingsOf(plan, recorder, write('info'))
  const isAtWork = (agentPath: string) => claims.waitUntilAtWork(agentPath)
  const gateway = createGateway({
    provider,
    ...(plan.fallbacks === undefined ? {} : { fallbacks: plan.fallbacks }),
    ...(plan.stepModels === undefined ? {} : { stepModels: plan.stepModels }),
    ...(plan.resumed === undefined ? {} : { ownName: plan.resumed.task.model }),
    runId,
    limits: limitsLeft(limits, record.state),
    ...(subAgent === undefined ? {} : { within: subAgent.within, idPrefix: subAgent.idPrefix }),
    network: plan.network,
    capabilityCache: capabilityCacheOf(plan),
    modelHolds: modelHoldsOf(plan),
    ...(plan.sharedKeys === undefined ? {} : { sharedKeys: plan.sharedKeys }),
    services: {
      paths: {
        ...serveWeb(recordWeb(web, recorder), { withSearch: policy.within === undefined }),
        ...(plan.skills === undefined ? {} : serveSkills(plan.skills)),
        ...(plan.memory === undefined ? {} : serveMemory(memoryOf(plan, plan.memory.store, note), isAtWork)),
      },
      egress: createEgressServer(ofPrograms, {
        upgrade: { secrets: plan.secrets, secureContext: () => plan.network.secureContext() },
      }),
    },
    modelHooks: modelHooksOf(hooks),
    ...(embeddings === undefined ? {} : { embeddings }),
    wrapUpstream: (server, keys) => {
      const recorded = recorder.wrap(recording?.upstream() ?? noticeLimit(server, parts.onModelLimit), keys)
      return parts.earlier?.over(recorded) ?? recorded
    },
    onModelEvent: note,
    onModelWait: (wait) => record.delta('root', wait),
    onDenied: ({ target, reason }) => note({ type: 'egress-denied', target, reason }),
    logger: { info: write('info'), warn: write('warn') },
  })
  const deciders = new Map<string, AccessAnswers['decide']>([
    [accessTool, (request, signal) => egress.ask(request, signal)],
  ])
  const { directory, mcp: known } = plan
  if (known !== undefined) {
    const inform = (text: string): void => write('info')({ runId }, text)
    const mcp = new McpTrust({ ...known, runId, directory, approvals, inform })
    deciders.set(mcpOfferTool, (request, signal) => mcp.decide(request, signal))
  }
  const requests = new RunRequests(plan, { ...parts, deciders })
  return {
    gateway,
    requests,
    close: async () => {
      await requests.close()
      await gateway.close()
      await web[Symbol.asyncDispose]?.()
    },
  }
}

/** Tells of refusals of the server that no waiting of the run helps against. */
function noticeLimit(server: Upstream, onLimit: GuestParts['onModelLimit']): Upstream {
  return {
    send: async (request, options) => {
      const answer = await server.send(request, options)
      const isLimited = !answer.ok && answer.error.code === ('limit_model' satisfies GatewayErrorCode)
      // What its agent would report of the failure would be part of the run.
      if (isLimited && onLimit(answer.error.message) && !options.signal.aborted)
        await once(options.signal, 'abort')
      return answer
    },
    close: () => server.close(),
  }
}

/** An agent that continues a run has what the one before has not spent. */
function limitsLeft(limits: RunLimits, { usage, costUsd }: RunState): RunLimits {
  const { maxTokens, maxRequests, maxCostUsd } = limits
  return {
    ...limits,
    maxTokens: maxTokens - usage.inputTokens - usage.outputTokens,
    ...(maxRequests === undefined ? {} : { maxRequests: maxRequests - usage.requests }),
    ...(maxCostUsd === undefined ? {} : { maxCostUsd: maxCostUsd - (costUsd ?? 0) }),
  }
}

/** Without hooks, no response is held back. */
function modelHooksOf(hooks: RunHooks): ModelHooks {
  const objectionOf = async (asked: Promise<HooksDecision>): Promise<string | null> => {
    const { decision, reason = '' } = await asked
    return decision === 'deny' ? reason : null
  }
  return {
    ...(hooks.has('before-model')
      ? { before: (request, signal) => objectionOf(hooks.ask('before-model', { request }, signal)) }
      : {}),
    ...(hooks.has('after-model')
      ? {
          after: (request, answer, signal) =>
            objectionOf(hooks.ask('after-model', { request, answer }, signal)),
        }
      : {}),
  }
}

function memoryOf(
  { runId, directory, secrets, provider, fallbacks = [], stepModels }: ResolvedRun,
  store: NoteStore,
  note: (event: HostEvent) => void,
): MemoryService {
  const ofKey = createRedaction(keysOf([provider, ...fallbacks, ...(stepModels?.values() ?? [])]))
  const redact = (text: string) => ofKey.text(secrets.redactionForUser().text(text))
  return new MemoryService({ store, runId, workspace: directory, note, redact })
}

/** Capabilities that model servers showed in earlier runs. */
const capabilityCacheOf = ({ folders }: ResolvedRun) => new CapabilityCache(folders)

/** What all processes of the user learned of their keys. */
const modelHoldsOf = ({ folders }: ResolvedRun) => new ModelHolds(folders)

/** The embedding model, or its recorded answers. */
function embeddingsOf(
  plan: ResolvedRun,
  recorder: Recorder,
  log: (fields: object, text: string) => void,
): EmbeddingModel | undefined {
  const { embeddings: provider, recording, runId, network } = plan
  if (provider === undefined) return undefined
  const { baseUrl, model } = provider
  const embedder =
    recording !== undefined || baseUrl === null
      ? recording && replayEmbedder(recording)
      : createHttpEmbedder({
          provider: { ...provider, baseUrl },
          timeouts: defaultTimeouts,
          runId,
          network,
          capabilityCache: capabilityCacheOf(plan),
          modelHolds: modelHoldsOf(plan),
          ...(plan.sharedKeys === undefined ? {} : { sharedKeys: plan.sharedKeys }),
          log,
        })
  return embedder && { embedder: recordEmbedder(embedder, recorder), model, price: priceOf(provider) }
}

/** The web tools with the real web, or with its recorded answers. */
function webOf(
  { recording, secrets, network, config, provider, resolveKey }: ResolvedRun,
  egress: Egress,
  warn: (text: string) => void,
): Web & Partial<AsyncDisposable> {
  if (recording !== undefined) return replayWeb(recording)
  const isOffline = provider.baseUrl === null
  return createWeb({ egress, secrets, network, search: config.search, isOffline, resolveKey, warn })
}

/** A replay needs no network, and a request without a recorded answer gets none. */
const nothingOut = denyAll('the run is a replay of a recording, without network access')
/** Programs of a plan-only run have no network access. */
const onlyPlans = denyAll(
  'the run only plans: programs have no network access; web_fetch and web_search may read',
)

function denyAll(reason: string): EgressPolicy {
  const closed = readRule({ effect: 'deny', host: '*', reason }, 'run')
  return { rules: closed.ok ? [closed.value] : [], otherwise: 'deny' }
}
