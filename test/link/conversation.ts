// A whole conversation of the real agent with the real host side over ports with faults: a task with a plan, steps that
// run in parallel, tools, deltas, a question, model streams and the change set. Only the VM is missing.
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import type { ServerHttp2Stream } from 'node:http2'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Duplex } from 'node:stream'
import { decodeChanges } from '#specs/node/change-stream.ts'
import type { AgentEvent } from '#specs/protocol/event.ts'
import { workspaceCollect } from '#specs/protocol/methods.ts'
import { type Completion, Task } from '#specs/protocol/task.ts'
import { LinkedPort } from '#specs/testing/linked-port.ts'
import { startDaemon } from '../../agent/daemon.ts'
import { toolFailure, toolSuccess } from '../../agent/tool-calls/tool.ts'
import { createFileTools } from '../../agent/tools/file-tools.ts'
import { describeWorkspace } from '../../agent/workspace/listing.ts'
import { createGateway } from '../../host/gateway/gateway.ts'
import { openAgentLink } from '../../host/guest/agent-link.ts'
import { offlineProvider } from '../../host/providers/providers.ts'
import { type Direction, FaultyPort, type FaultyPortOptions } from './faulty-port.ts'
import { patientTimings } from './support.ts'

export type PortName = 'rpc' | 'http'

const runId = `run-${'0'.repeat(19)}1`
const prompt =
  "Create a.txt with the content 'a' and create b.txt with the content 'b' and delete the file old.txt"
const timeoutMs = 60_000

/** What must be the same, wherever the link was cut. */
export interface Outcome {
  readonly outcome: string
  readonly summary: string
  readonly files: Readonly<Record<string, string>>
  /** Beginnings and ends of steps and calls, sorted: parallel steps have no order. */
  readonly work: readonly string[]
  readonly approvals: readonly string[]
  readonly changes: readonly string[]
  readonly completions: number
  /** Whether the numbers of the events are 1, 2, 3 and so on. */
  readonly isCounted: boolean
  readonly bugs: readonly string[]
}

export interface Conversation {
  readonly outcome: Outcome
  readonly bytes: Readonly<Record<PortName, Readonly<Record<Direction, number>>>>
  readonly sessions: number
  readonly requests: number
  /** Faults that came about. */
  readonly faults: number
}

export interface ConversationFaults {
  readonly rpc?: FaultyPortOptions
  readonly http?: FaultyPortOptions
  /** Who begins the new session after a cut. Default: the host. */
  readonly renewedBy?: 'host' | 'guest'
}

/** @throws when the run does not end in time */
export async function converse(faults: ConversationFaults = {}): Promise<Conversation> {
  const folder = mkdtempSync(join(tmpdir(), 'caisson-conversation-'))
  const [merged, base] = [join(folder, 'merged'), join(folder, 'base')]
  mkdirSync(base)
  writeFileSync(join(base, 'old.txt'), 'x')
  cpSync(base, merged, { recursive: true })

  const [rpc, http] = [new LinkedPort(), new LinkedPort()]
  const guestSides: Partial<Record<PortName, Duplex>> = {}
  const open = (name: PortName): Duplex => {
    const side = { rpc, http }[name].openGuest()
    guestSides[name] = side
    return side
  }
  const onCut = (name: PortName) => (): void => {
    if (faults.renewedBy === 'guest') guestSides[name]?.destroy()
    else link.restartSession('cut')
  }
  const ports = {
    rpc: new FaultyPort(rpc.host, { onCut: onCut('rpc'), ...faults.rpc }),
    http: new FaultyPort(http.host, { onCut: onCut('http'), ...faults.http }),
  }
  const seen = {
    events: [] as { n: number; event: AgentEvent }[],
    approvals: [] as string[],
    completions: [] as Completion[],
    bugs: [] as string[],
    sessions: 0,
    requests: 0,
  }
  const completed = Promise.withResolvers<Completion>()
  const gateway = createGateway({
    provider: offlineProvider(false),
    runId,
    limits: { maxTokens: 10_000_000 },
    onModelEvent: ({ type }) => {
      if (type === 'model-start') seen.requests++
    },
    onDenied: () => undefined,
    logger: { info: () => undefined, warn: () => undefined },
  })
  let changes: string[] = []
  const receive = async (stream: ServerHttp2Stream): Promise<void> => {
    const received: string[] = []
    for await (const { entry, content } of decodeChanges(stream as AsyncIterable<Uint8Array>)) {
      let text = ''
      for await (const piece of content) text += Buffer.from(piece).toString()
      received.push(`${entry.kind} ${'path' in entry ? entry.path : ''} ${text}`)
    }
    changes = received.sort()
    stream.respond({ ':status': 204 }, { endStream: true })
  }
  const link = openAgentLink({
    ...ports,
    onStream: (stream, headers) => {
      if (headers[':path'] === `/changes/${runId}`) receive(stream).catch(() => stream.close())
      else gateway.handleStream(stream, headers)
    },
    onSessionStart: () => {
      seen.sessions++
    },
    onAgentLost: ({ message }) => seen.bugs.push(`lost: ${message}`),
    onBug: (method, cause) => seen.bugs.push(`${method}: ${String(cause)}`),
    timings: { ...patientTimings, heartbeatIntervalMs: 500 },
    handlers: {
      onEvent: (_runId, { n, event }) => void seen.events.push({ n, event }),
      onDelta: () => undefined,
      requestApproval: (request) => {
        seen.approvals.push(`${request.tool} ${request.arguments}`)
        return Promise.resolve({ ok: true, value: { decision: 'allow' } })
      },
      completeTask: (completion) => {
        seen.completions.push(completion)
        completed.resolve(completion)
        return Promise.resolve({ ok: true, value: {} })
      },
      onLog: () => undefined,
    },
  })
  const tools = createFileTools(() => Promise.resolve(toolFailure('unavailable', 'no sandbox here')), {
    root: merged,
  })
  const daemon = startDaemon({
    openRpc: async () => open('rpc'),
    openHttp: async () => open('http'),
    root: {
      mountWorkspace: () => Promise.resolve(toolFailure('internal', 'no disk')),
      resetWorkspace: () => Promise.resolve(toolSuccess({})),
      openShell: () => Promise.reject(new Error('no shell')),
    },
    tools,
    listWorkspace: (signal) => describeWorkspace(tools, signal),
    describeExits: () => ({ restarts: 0 }),
    collect: { merged, base, upper: join(folder, 'none') },
  })
  daemon.logger.level = 'silent'
  const late = Promise.withResolvers<never>()
  const timer = setTimeout(() => late.reject(new Error(`no end: ${JSON.stringify(seen)}`)), timeoutMs)
  try {
    const work = async (): Promise<Completion> => {
      const task = Task.parse({ runId, prompt, model: 'caisson/offline', limits: {} })
      const submitted = await link.submitTask(task)
      if (!submitted.ok) throw new Error(`not submitted: ${submitted.error.message}`)
      const completion = await completed.promise
      const collected = await link.request(workspaceCollect, { runId })
      if (!collected.ok) throw new Error(`not collected: ${collected.error.message}`)
      return completion
    }
    const closed = link.closed.then(({ message }): never => {
      throw new Error(`the link ended: ${message}`)
    })
    closed.catch(() => undefined)
    const completion = await Promise.race([work(), closed, late.promise])
    return {
      outcome: {
        outcome: completion.outcome,
        summary: completion.summary,
        files: Object.fromEntries(
          readdirSync(merged).map((name) => [name, readFileSync(join(merged, name), 'utf8')]),
        ),
        work: seen.events.flatMap(({ event }) => describeWork(event)).sort(),
        approvals: seen.approvals,
        changes,
        completions: seen.completions.length,
        isCounted: seen.events.every(({ n }, index) => n === index + 1),
        bugs: seen.bugs,
      },
      bytes: { rpc: { ...ports.rpc.passed }, http: { ...ports.http.passed } },
      sessions: seen.sessions,
      requests: seen.requests,
      faults: ports.rpc.done.length + ports.http.done.length,
    }
  } finally {
    clearTimeout(timer)
    link.close()
    await daemon.close()
    await gateway.close()
    rmSync(folder, { recursive: true, force: true })
  }
}

/** An interrupted request to the model is repeated, so turns may differ; work may not. */
function describeWork(event: AgentEvent): string[] {
  if (event.type === 'step-start') return [`step ${event.stepId}`]
  if (event.type === 'step-end') return [`step ${event.stepId} ${event.state} ${event.text}`]
  if (event.type === 'tool-start') return [`call ${event.stepId} ${event.tool} ${event.arguments}`]
  if (event.type === 'tool-end') return [`call ${event.stepId} ${event.tool} ${event.output}`]
  if (event.type === 'plan-update') return [`plan ${JSON.stringify(event.plan)}`]
  return []
}
