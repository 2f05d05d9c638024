/** Routes of protocols between agents and front ends. They call other routes for their caller and have no rights of their own. */
import type { CleanText } from '#specs/protocol/shown-text.ts'
import type { ReplyOf, RequestOf } from '#specs/service/route.ts'
import type { routes } from '#specs/service/routes.ts'
import { agentCardJson, answerA2a } from '../a2a/index.ts'
import { answerAgUi } from '../ag-ui/index.ts'
import type { RunService } from '../run-view/run-view.ts'
import type { Caller } from './callers.ts'
import { EventStream } from './events.ts'
import type { Answer, Call } from './handler.ts'
import { requireScope } from './ownership.ts'

export interface AgentParts {
  readonly serviceOf: (caller: Caller, signal: AbortSignal) => RunService
  readonly clean: CleanText
  readonly version: string
  /** Origin by which people reach the service. Absent: that of the request. */
  readonly publicUrl: string | undefined
  readonly log: (line: Readonly<Record<string, unknown>>) => void
}

/** As in `Handlers`. */
export type AgentHandlers = {
  readonly [N in 'agUi' | 'agentCard' | 'a2a']: (
    request: RequestOf<(typeof routes)[N]>,
    call: Call,
  ) => Promise<Answer<ReplyOf<(typeof routes)[N]> | EventStream>>
}

export function makeAgentHandlers(parts: AgentParts): AgentHandlers {
  const { clean, version, publicUrl, log } = parts
  // Whoever may see the runs of others takes none of them for a conversation of their own.
  const serviceOf = (caller: Caller, signal: AbortSignal) =>
    parts.serviceOf({ ...caller, seesOwnAlone: true }, signal)
  return {
    agentCard: async (_, { baseUrl = '' }) => ({
      body: agentCardJson(publicUrl ?? baseUrl, version) as never,
    }),
    a2a: async ({ body }, { caller, signal, a2aVersion }) => {
      const service = serviceOf(caller, signal)
      const answer = await answerA2a(
        { service, clean, signal, log, version, requestedVersion: a2aVersion },
        body,
      )
      return { body: 'frames' in answer ? new EventStream(answer.frames) : (answer.reply as never) }
    },
    agUi: async ({ body }, { caller, signal }) => {
      // Before anything is done, since its answer is the run.
      requireScope(caller, 'read')
      const service = serviceOf(caller, signal)
      const canAnswer = caller.scopes.has('approve')
      const threads = { service, clean, signal, canAnswer, callerId: caller.name }
      return { body: new EventStream(await answerAgUi(threads, body)) }
    },
  }
}
