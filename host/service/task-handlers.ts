/**
 * The compatible routes: ordinary runs whose answer waits for their end, and notes of proposals. A client that goes away
 * ends no run; the same `Idempotency-Key` finds it again.
 */
import type { ReplyOf, RequestOf } from '#specs/service/route.ts'
import type { routes } from '#specs/service/routes.ts'
import { CaissonError, type Host, toTaskAnswer } from '../index.ts'
import { actorOf, type Caller } from './callers.ts'
import { Refusal } from './problems.ts'
import { headerKey } from './run-keys.ts'
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
      const { runId } = await runs.start({ prompt: message, context }, caller, headerKey({ idempotencyKey }))
      return { body: await resultOf(runId, longestMs, signal), headers: placeOf(runId) }
    },
    runTask: async ({ body: { goal, context, tools } }, { caller, idempotencyKey, signal }) => {
      const request = {
        prompt: goal,
        ...(context === undefined ? {} : { context: { context } }),
        ...(tools === undefined ? {} : { tools }),
      }
      const { runId } = await runs
        .start(request, caller, headerKey({ idempotencyKey }))
        .catch((error: unknown) => {
          throw namingTools(error)
        })
      const result = await resultOf(runId, longestMs, signal)
      // The caller wrote them. Any other note waits for a person, as those of every run.
      if (caller.scopes.has('approve'))
        await (await host.runNotes(runId)).keepThoseIn(goal, actorOf(caller, undefined))
      // The agent wrote its answer before that.
      const kept = await keptIn(host, runId)
      const answer = toTaskAnswer(result, await host.trace(runId))
      const output = kept.length === 0 ? answer.output : `${answer.output}\nKept: ${kept.join(', ')}.`
      return { body: { ...answer, output }, headers: placeOf(runId) }
    },
    listProposalNotes: async ({ params: { proposal } }) => ({
      body: { proposal_id: proposal, notes: (await host.notes.ofProposal(proposal)).map(({ text }) => text) },
    }),
    serviceHealth: async () => ({ body: { status: 'healthy', service: 'caisson', version } }),
  }
}

/** Ids of the notes of a run that are kept, also for a caller who asks again. */
async function keptIn(host: Host, runId: string): Promise<string[]> {
  const { settled } = await host.runNotes(runId)
  return settled.filter(({ state }) => state === 'kept').map(({ noteId }) => noteId)
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
