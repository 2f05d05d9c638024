// Warms up the agent of a new template VM. The offline model runs a small task through plan, tools and change set, so
// that modules and code are loaded; then several sessions start and end. No user data is involved: no key, no
// workspace, no prompt.

import { once } from 'node:events'
import type { ServerHttp2Stream } from 'node:http2'
import { setTimeout as sleep } from 'node:timers/promises'
import { CaissonError } from '#specs/errors.ts'
import { agentPing, workspaceCollect, workspaceOpen, workspaceReset } from '#specs/protocol/methods.ts'
import { RunLimits } from '#specs/protocol/task.ts'
import { createGateway } from '../../gateway/gateway.ts'
import { type AgentLink, type LinkHandlers, openAgentLink } from '../../guest/agent-link.ts'
import type { StreamHandler } from '../../guest/http-server.ts'
import { offlineProvider } from '../../providers/providers.ts'
import type { Vm } from '../../vm/vm.ts'

const RUN_ID = 'run-00000000000000000000'
const PROMPT = 'Run the command `python3 -c "import csv, json, statistics" && git --version && rg --version`'
/**
 * Number of session starts after which V8 knows all object shapes on that path. A copy then compiles thousands of code
 * objects fewer. With many more, V8 starts to optimize, and a copy may wake up in the middle of that.
 */
const SESSIONS = 20
const STEP_DEADLINE_MS = 60_000
/** Time for the guest's work after the task: closed connections, timers, garbage collection. */
const IDLE_MS = 500

const options = { timeoutMs: STEP_DEADLINE_MS }

/** @throws {CaissonError} `vm_failed` when the warm-up task fails */
export async function warmUp(vm: Vm): Promise<void> {
  await runWarmUpTask(vm)
  for (let count = 0; count < SESSIONS; count += 1) await beginSession(vm)
  // The agent repeats its session request: no state of a session is left.
  vm.rpc.resume()
  await within(once(vm.rpc, 'data'))
  await sleep(IDLE_MS)
}

async function runWarmUpTask(vm: Vm): Promise<void> {
  const completed = Promise.withResolvers<void>()
  await using gateway = openGateway()
  const changes = Promise.withResolvers<void>()
  const onStream: StreamHandler = (stream, headers) => {
    if (headers[':path'] === `/changes/${RUN_ID}`) changes.resolve(drain(stream))
    else gateway.handleStream(stream, headers)
  }
  const link = openLink(vm, onStream, async ({ outcome, message }) => {
    if (outcome === 'completed') completed.resolve()
    else completed.reject(new CaissonError('vm_failed', `warming up: the task ${outcome}: ${message}`))
    return { ok: true, value: {} }
  })
  completed.promise.catch(() => undefined)
  try {
    await ask(link.ready(options))
    await ask(link.request(workspaceOpen, {}, options))
    const limits = RunLimits.parse({})
    const task = { runId: RUN_ID, prompt: PROMPT, model: offlineProvider(false).model, askTools: [], limits }
    await ask(link.submitTask(task, options))
    await within(completed.promise)
    await ask(link.request(workspaceCollect, { runId: RUN_ID }, options))
    await within(changes.promise)
    await ask(link.request(workspaceReset, { keepHome: false }, options))
    await ask(link.request(agentPing, { count: 0 }, options))
  } finally {
    link.close()
  }
}

async function beginSession(vm: Vm): Promise<void> {
  const noTask = { ok: false, error: { code: 'notFound', message: 'no task was given' } } as const
  const link = openLink(
    vm,
    (stream) => stream.close(),
    async () => noTask,
  )
  try {
    await ask(link.ready(options))
    await ask(link.request(agentPing, { count: 0 }, options))
  } finally {
    link.close()
  }
}

function openLink(vm: Vm, onStream: StreamHandler, completeTask: LinkHandlers['completeTask']): AgentLink {
  return openAgentLink({
    rpc: vm.rpc,
    http: vm.http,
    cloned: true,
    onStream,
    handlers: {
      onEvent: () => undefined,
      onDelta: () => undefined,
      requestApproval: async () => ({ ok: true, value: { decision: 'deny' } }),
      completeTask,
      onLog: () => undefined,
    },
  })
}

async function ask(answer: Promise<{ ok: boolean; error?: { message: string } }>): Promise<void> {
  const { ok, error } = await answer
  if (!ok) throw new CaissonError('vm_failed', `warming up: ${error?.message ?? 'no answer'}`)
}

function openGateway() {
  const silent = { info: () => undefined, warn: () => undefined }
  const gateway = createGateway({
    provider: offlineProvider(false),
    runId: RUN_ID,
    limits: { maxTokens: 1_000_000 },
    onModelEvent: () => undefined,
    onDenied: () => undefined,
    logger: silent,
  })
  return { ...gateway, [Symbol.asyncDispose]: () => gateway.close() }
}

async function drain(stream: ServerHttp2Stream): Promise<void> {
  stream.resume()
  await once(stream, 'end')
  stream.respond({ ':status': 204 }, { endStream: true })
}

async function within<T>(work: Promise<T>): Promise<T> {
  const late = Promise.withResolvers<never>()
  const timer = setTimeout(
    () => late.reject(new CaissonError('vm_failed', 'warming up: the agent took too long')),
    STEP_DEADLINE_MS,
  )
  try {
    return await Promise.race([work, late.promise])
  } finally {
    clearTimeout(timer)
  }
}
