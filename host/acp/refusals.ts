/** What a request that fails is answered with: a code of JSON-RPC, what failed, and what to do; nothing else of an error. */
import { RequestError } from '@agentclientprotocol/sdk'
import { CaissonError, type ErrorCode } from '#specs/errors.ts'
import type { FrameSchema } from './schema.ts'

/** JSON-RPC 2.0, section 5.1; `notFound` is of the Agent Client Protocol, version 1. */
const codes = { notPossible: -32_600, invalidParams: -32_602, internal: -32_603, notFound: -32_002 } as const

/** The request asks for what is never possible. */
export function invalidParams(message: string): RequestError {
  return new RequestError(codes.invalidParams, message)
}

/** The request is right, at another time. */
export function notPossibleNow(message: string): RequestError {
  return new RequestError(codes.notPossible, message)
}

export type MissingSession = 'unknown' | 'closed' | 'other directory'

const whys: Readonly<Record<MissingSession, string>> = {
  unknown: 'is not known here; start one with session/new, or choose one that session/list names',
  closed: 'is closed; open it with session/load or session/resume, or start one with session/new',
  'other directory': 'is not of this directory; ask for it with the cwd that session/list names',
}

/** @param damaged ids of runs whose session is not known */
export function noSession(
  sessionId: string,
  why: MissingSession,
  damaged: readonly string[] = [],
): RequestError {
  const shown = JSON.stringify(sessionId.slice(0, 100).toWellFormed())
  const [first] = damaged
  const others = damaged.length > 1 ? ` and ${damaged.length - 1} more` : ''
  const note =
    first === undefined
      ? ''
      : `. The damaged run ${first}${others} may be of it; look at it: caisson runs show ${first}`
  return new RequestError(codes.notFound, `The session ${shown} ${whys[why]}${note}`, { sessionId })
}

/** Parameters of a method that the SDK does not check. @throws {RequestError} for what the schema refuses */
export function parsedBy<Params>(schema: FrameSchema, method: string, params: unknown): Params {
  const fault = schema.findFault('agent', method, 'params', params)
  if (fault !== undefined) throw invalidParams(`${method} does not fit the protocol: ${fault}`)
  return params as Params
}

const codesOfErrors: Readonly<Partial<Record<ErrorCode, number>>> = {
  invalid_options: codes.invalidParams,
  invalid_plan: codes.invalidParams,
  invalid_rules: codes.invalidParams,
  price_unknown: codes.invalidParams,
  workspace_refused: codes.invalidParams,
  run_not_found: codes.notFound,
  file_not_found: codes.notFound,
  run_busy: codes.notPossible,
  not_possible_now: codes.notPossible,
  queue_full: codes.notPossible,
}

/**
 * The handler of a request; whatever it throws is an error that the editor can show. One that does not wait answers at once,
 * since requests behind `initialize` are refused until it has its answer.
 */
export function answering<Given, Answer>(
  handle: (given: Given) => Answer | Promise<Answer>,
  log: (line: string) => void,
): (given: Given) => Answer | Promise<Answer> {
  const refuse = (error: unknown): never => {
    throw refusalOf(error, log)
  }
  return (given) => {
    try {
      const answer = handle(given)
      return answer instanceof Promise ? answer.catch(refuse) : answer
    } catch (error) {
      return refuse(error)
    }
  }
}

function refusalOf(error: unknown, log: (line: string) => void): RequestError {
  if (error instanceof RequestError) return error
  const { code, message } = CaissonError.from(error)
  const answered = codesOfErrors[code] ?? codes.internal
  if (code === 'internal') log(error instanceof Error ? (error.stack ?? message) : message)
  return new RequestError(answered, message, { code })
}
