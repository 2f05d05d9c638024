/**
 * The compatible routes: ordinary runs whose answer waits for their end, and notes of proposals. A client that goes away
 * ends no run; the same `Idempotency-Key` finds it again.
 */
import type { ReplyOf, RequestOf } from '#specs/service/route.ts'
import type { routes } from '#specs/service/routes.ts'
import type { TaskAnswer, TraceEntry } from '#specs/service/task-resources.ts'
import { CaissonError, type Host } from '../index.ts'
import { actorOf, type Caller } from './callers.ts'
import { Refusal } from './problems.ts'
import type { ServiceRuns } from './service-runs.ts'

/** Longest time that a timer of Node can wait. */
const longestMs = 2 ** 31 - 1

type RunResult = ReplyOf<(typeof routes)['getResult']>

/** As in `Handlers`. */
export type TaskHandlers = {
  readonly [N in 'runChat' | 'runTask' | 'listProposalNotes' | 'serviceHealth']: (
    request: RequestOf<(typeof routes)[N]>,
    call: {
      readonly caller: Caller
      readonly idempotencyKey: string | undefined
      readonly signal: AbortSignal
    },
  ) => Promise<{
    readonly body: ReplyOf<(typeof routes)[N]>
    readonly headers?: Readonly<Record<string, string>>
  }>
}

export interface TaskParts {
  readonly host: Host
  readonly runs: ServiceRuns
  readonly version: string
  /** Waits for the end of a run. */
  resultOf(runId: string, waitMs: number, signal: AbortSignal): Promise<RunResult>
}

export function makeTaskHandlers({ host, runs, version, resultOf }: TaskParts): TaskHandlers {
  return {
    runChat: async ({ body: { message, context } }, { caller, idempotencyKey, signal }) => {
      const runId = await runs.start({ prompt: message, context }, caller, idempotencyKey)
      return { body: await resultOf(runId, longestMs, signal), headers: placeOf(runId) }
    },
    runTask: async ({ body: { goal, context, tools } }, { caller, idempotencyKey, signal }) => {
      const request = {
        prompt: goal,
        ...(context === undefined ? {} : { context: { context } }),
        ...(tools === undefined ? {} : { tools }),
      }
      const runId = await runs.start(request, caller, idempotencyKey).catch((error: unknown) => {
        throw namingTools(error)
      })
      const result = await resultOf(runId, longestMs, signal)
      if (caller.scopes.has('approve')) await keepOwnNotes(host, runId, goal, actorOf(caller, undefined))
      return { body: taskAnswer(result, await traceOf(host, runId)), headers: placeOf(runId) }
    },
    listProposalNotes: async ({ params: { proposal } }) => ({
      body: { proposal_id: proposal, notes: host.notes.ofProposal(proposal).map(({ text }) => text) },
    }),
    serviceHealth: async () => ({ body: { status: 'healthy', service: 'caisson', version } }),
  }
}

function placeOf(runId: string): Record<string, string> {
  return { location: `/v1/runs/${runId}` }
}

/** Which field of the request names a tool that there is not. */
function namingTools(error: unknown): unknown {
  const { code, message } = CaissonError.from(error)
  if (code !== 'invalid_options' || !/\btool\b/.test(message)) return error
  return new Refusal(400, 'invalid_request', `the body does not fit: tools: ${message}`, {
    errors: [{ field: 'tools', message }],
  })
}

function taskAnswer({ outcome, summary, message }: RunResult, trace: TraceEntry[]): TaskAnswer {
  const isDone = outcome === 'completed'
  return {
    status: isDone ? 'success' : 'error',
    output: isDone ? summary : [message, summary].filter((text) => text !== '').join('\n'),
    trace,
  }
}

/**
 * Keeps the notes of a run that stand in its goal word for word: the caller wrote them. Any other note waits for a
 * person, as those of every run.
 */
async function keepOwnNotes(host: Host, runId: string, goal: string, by: string): Promise<void> {
  const notes = await host.runNotes(runId)
  const own = notes.pending.filter(
    ({ kind, note }) =>
      kind === 'governance' &&
      goal.includes(note.text) &&
      goal.toUpperCase().includes(note.proposalId.toUpperCase()),
  )
  if (own.length === 0) return
  await notes.decide(new Map(own.map(({ note }) => [note.noteId, { keep: true }])), by)
}

/** The tool calls of a run and its sub-agents, in the order of their starts. */
async function traceOf(host: Host, runId: string): Promise<TraceEntry[]> {
  const calls = new Map<string, TraceEntry>()
  await host.runs.visit(runId, (line) => {
    if (line.source !== 'agent') return
    const { at, agentPath, event } = line
    if (event.type === 'tool-start')
      calls.set(`${agentPath} ${event.callId}`, {
        step: calls.size + 1,
        tool: event.tool,
        input: parse(event.arguments) ?? { text: event.arguments },
        output: null,
        error: 'the run ended before this call did',
        timestamp: new Date(at).toISOString(),
      })
    if (event.type !== 'tool-end') return
    const key = `${agentPath} ${event.callId}`
    const call = calls.get(key)
    if (call === undefined) return
    const { error, output } = event
    calls.set(key, {
      ...call,
      output: error === undefined ? outputOf(call, output) : null,
      error: error === undefined ? null : `${error.code}: ${error.message}`,
    })
  })
  return [...calls.values()]
}

function outputOf({ tool, input }: TraceEntry, text: string): unknown {
  const number = Number(text)
  if (tool !== 'math' || !isArguments(input)) return { text }
  // A JSON number has about 15 digits; a longer one stays a text.
  return { result: String(number) === text ? number : text, expression: input.expression }
}

function isArguments(input: unknown): input is { readonly expression: unknown } {
  return typeof input === 'object' && input !== null && 'expression' in input
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
