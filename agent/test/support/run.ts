/** A run for tests: the real registry, budget and model client, a host that writes down what it hears. */
import { setTimeout as sleep } from 'node:timers/promises'
import { pino } from 'pino'
import * as z from 'zod'
import { createModel, type Model } from '#runtime/llm/model.ts'
import type { ApprovalDecision, ApprovalRequest } from '#specs/protocol/approval.ts'
import { AgentEvent, Delta } from '#specs/protocol/event.ts'
import { Task } from '#specs/protocol/task.ts'
import { RunBudget } from '../../run/budget.ts'
import { type AgentRun, CallIds, RunHost } from '../../run/run.ts'
import { noLog, type RunLog } from '../../run/run-log.ts'
import { Steering } from '../../run/steering.ts'
import { SubAgents } from '../../run/sub-agents.ts'
import { OutputStore } from '../../run/tool-outputs.ts'
import type { TaskServerParts } from '../../tasks.ts'
import { createRegistry, type Registry } from '../../tool-calls/registry.ts'
import { defineTool, type Tool, toolFailure, toolSuccess } from '../../tool-calls/tool.ts'

export const silentLogger = pino({ level: 'silent' })
export const someRunId = 'run-00000000000000000001'

/** A host without hooks and tools of its own. */
export const plainHost: Pick<
  TaskServerParts['host'],
  'beginRun' | 'runHook' | 'callTool' | 'makeCheckpoint'
> = {
  makeCheckpoint: () => Promise.resolve({ ok: true, value: { made: false } }),
  beginRun: () => undefined,
  runHook: () => Promise.resolve({ ok: true, value: { decision: 'allow' } }),
  callTool: () =>
    Promise.resolve({
      ok: true,
      value: { ok: false, error: { code: 'unknown_tool', message: 'none', retryable: false } },
    }),
}

/** A task with defaults. */
export function makeTask(fields: Partial<z.input<typeof Task>> = {}): Task {
  return Task.parse({ runId: someRunId, prompt: 'count the files', model: 'm', limits: {}, ...fields })
}

/** What tools of tests do when they are called. */
export interface ToolDiary {
  readonly calls: string[]
  running: number
  mostRunning: number
}

/** Four small tools: `read_note` reads, `write_note` writes, `drop_note` asks first, `wait_long` waits for its signal. */
export function noteTools(diary: ToolDiary = { calls: [], running: 0, mostRunning: 0 }): Tool[] {
  const during = async <T>(call: string, work: () => Promise<T>): Promise<T> => {
    diary.calls.push(call)
    diary.mostRunning = Math.max(diary.mostRunning, ++diary.running)
    try {
      return await work()
    } finally {
      diary.running--
    }
  }
  const common = {
    outputSchema: z.strictObject({ text: z.string() }),
    requiresApproval: false,
  }
  return [
    defineTool({
      ...common,
      name: 'read_note',
      description: 'Reads a note. Gives its text.',
      inputSchema: z.strictObject({ path: z.string(), limit: z.int().min(1).optional() }),
      readOnly: true,
      execute: ({ path }) =>
        during(`read ${path}`, async () => {
          await sleep(path === 'slow' ? 30 : 1)
          // A note such as `met 1` is there once three calls are under way.
          for (let left = 10_000; path.startsWith('met') && diary.mostRunning < 3 && left > 0; left--)
            await sleep(1)
          return path === 'missing'
            ? toolFailure('not_found', `no note ${path}`)
            : toolSuccess({ text: `text of ${path}` })
        }),
      render: ({ text }) => text,
    }),
    defineTool({
      ...common,
      name: 'write_note',
      description: 'Writes a note.',
      inputSchema: z.strictObject({ path: z.string(), content: z.string() }),
      readOnly: false,
      execute: ({ path, content }) =>
        during(`write ${path}`, async () => {
          await sleep(1)
          return toolSuccess({ text: `${content.length} characters written` })
        }),
    }),
    defineTool({
      ...common,
      name: 'drop_note',
      description: 'Deletes a note.',
      inputSchema: z.strictObject({ path: z.string() }),
      requiresApproval: true,
      readOnly: false,
      preview: ({ path }) => Promise.resolve(`deletes ${path}`),
      execute: ({ path }) => during(`drop ${path}`, async () => toolSuccess({ text: 'gone' })),
    }),
    defineTool({
      ...common,
      name: 'wait_long',
      description: 'Waits.',
      inputSchema: z.strictObject({ stubborn: z.boolean().default(false) }),
      readOnly: false,
      execute: ({ stubborn }, { signal, emitOutput }) =>
        during('wait', async () => {
          emitOutput('stdout', 'waiting')
          await new Promise<void>((resolve) => {
            if (!stubborn) signal.addEventListener('abort', () => resolve(), { once: true })
          })
          return toolFailure('cancelled', 'interrupted')
        }),
    }),
  ]
}

export interface TestRun {
  readonly run: AgentRun
  readonly events: AgentEvent[]
  readonly deltas: Delta[]
  readonly approvals: Omit<ApprovalRequest, 'runId'>[]
  readonly diary: ToolDiary
  cancel(reason?: string): void
}

/** Model of a scripted server, with pauses too short to notice. */
export function modelAt(baseUrl: string, model = 'm'): Model {
  return createModel({
    model,
    baseUrl,
    firstDelayMs: 1,
    maxDelayMs: 2,
    idleTimeoutMs: 5_000,
    firstEventTimeoutMs: 5_000,
  })
}

export interface TestRunOptions {
  readonly task?: Partial<z.input<typeof Task>>
  readonly model: Model
  readonly stepModels?: AgentRun['stepModels']
  readonly registry?: Registry
  readonly decide?: (
    request: Omit<ApprovalRequest, 'runId'>,
    signal: AbortSignal,
  ) => Promise<ApprovalDecision>
  /** What a person did to sub-agents before an agent continued the run. */
  readonly subAgents?: SubAgents
  /** Absent: nothing is logged. */
  readonly log?: RunLog
}

/** A run; every event and delta is checked against the protocol as it is heard. */
export function makeRun(options: TestRunOptions): TestRun {
  const diary: ToolDiary = { calls: [], running: 0, mostRunning: 0 }
  const events: AgentEvent[] = []
  const deltas: Delta[] = []
  const approvals: Omit<ApprovalRequest, 'runId'>[] = []
  const task = makeTask(options.task)
  const budget = new RunBudget(task.limits)
  const cancel = new AbortController()
  const host = new RunHost(
    task.runId,
    {
      ...plainHost,
      emitEvent: async (_runId, _agentPath, event) => void events.push(AgentEvent.parse(event)),
      emitDelta: (_runId, _agentPath, delta) => void deltas.push(Delta.parse(delta)),
      requestApproval: async ({ runId: _runId, ...request }, signal) => {
        approvals.push(request)
        return { ok: true, value: (await options.decide?.(request, signal)) ?? { decision: 'allow' } }
      },
    },
    budget,
  )
  const steering = new Steering()
  const run: AgentRun = {
    task,
    agentPath: 'root',
    model: options.model,
    ...(options.stepModels === undefined ? {} : { stepModels: options.stepModels }),
    registry:
      options.registry ?? createRegistry(noteTools(diary), { logger: silentLogger, cancelGraceMs: 50 }),
    workspaceListing: 'a.csv (12 bytes)',
    report: host.reportOf('root'),
    requestApproval: host.requestApproval,
    budget,
    steering,
    subAgents: options.subAgents ?? new SubAgents(steering),
    signal: AbortSignal.any([cancel.signal, budget.signal]),
    cancelled: cancel.signal,
    concludeMs: 500,
    callIds: new CallIds(),
    outputs: new OutputStore(),
    log: options.log ?? noLog,
    logger: silentLogger,
  }
  return { run, events, deltas, approvals, diary, cancel: (reason = 'test') => cancel.abort(reason) }
}
