/** Errors as RFC 9457 has them: which status each code has, and what a caller may read of it. */
import { CaissonError, type ErrorCode } from '#specs/errors.ts'
import type { Problem } from '#specs/service/resources.ts'
import { ServiceError } from '../../client/index.ts'
import { WorkflowError } from '../index.ts'
import type { ProblemCode } from './problem-codes.ts'

/** Of a body; a run's context and plan must fit. */
export const bodyMaxBytes = 8 * 1024 * 1024

/** A refusal of the service itself. */
export class Refusal extends Error {
  readonly problem: Problem
  /** Further headers of the answer. */
  readonly headers: Readonly<Record<string, string>>

  constructor(
    status: number,
    code: ProblemCode,
    detail: string,
    more: { remedy?: string; errors?: Problem['errors']; headers?: Record<string, string> } = {},
  ) {
    super(detail)
    const { headers = {}, ...fields } = more
    this.headers = headers
    this.problem = makeProblem(status, code, detail, fields)
  }
}

/** A code that no request should cause is 500. */
const statuses: Readonly<Record<ErrorCode, number>> = {
  invalid_options: 400,
  invalid_config: 500,
  price_unknown: 400,
  invalid_rules: 400,
  invalid_plan: 400,
  invalid_workflow: 400,
  invalid_recording: 409,
  invalid_archive: 409,
  workspace_refused: 403,
  run_not_found: 404,
  vm_not_found: 404,
  file_not_found: 404,
  run_busy: 409,
  not_possible_now: 409,
  connection_lost: 503,
  version_mismatch: 409,
  state_corrupted: 500,
  state_unavailable: 503,
  lock_unsupported: 503,
  permission_denied: 403,
  no_space: 503,
  limit_reached: 503,
  queue_full: 429,
  queue_timeout: 503,
  provider_unavailable: 503,
  image_unavailable: 503,
  vm_failed: 503,
  vm_lost: 503,
  agent_lost: 503,
  protocol_violation: 503,
  model_unreachable: 503,
  model_refused: 503,
  model_broken: 503,
  tool_failed: 500,
  script_mismatch: 503,
  denied: 403,
  cancelled: 503,
  internal: 500,
}

/** Routes that do what a command of a remedy does, by its words. */
const routeOf: Readonly<Record<string, (run: string) => string>> = {
  'runs show': (run) => `GET /v1/runs/${run}`,
  'runs cancel': (run) => `POST /v1/runs/${run}/cancel`,
  'runs resume': (run) => `POST /v1/runs/${run}/resume`,
  'runs rm': (run) => `DELETE /v1/runs/${run}`,
  'approvals list': () => 'GET /v1/approvals',
  'workspace diff': (run) => `GET /v1/runs/${run}/changes`,
  'workspace apply': (run) => `POST /v1/runs/${run}/changes/apply`,
  'workspace undo': (run) => `POST /v1/runs/${run}/changes/undo`,
}
const commandOnRun = /\bcaisson ([a-z]+ [a-z]+) (run-[0-9a-f]{20})/g

export interface Described {
  readonly problem: Problem
  /** Further headers of the answer. */
  readonly headers: Readonly<Record<string, string>>
  /** A fault of the service, for its log. Absent: the request was refused. */
  readonly fault?: CaissonError
}

/** What a caller reads of any error, and what is for the log. */
export function problemOfAny(error: unknown): Described {
  if (error instanceof Refusal) return error
  // A refusal of a route, by way of another protocol.
  if (error instanceof ServiceError)
    return error.cause === undefined ? { problem: error.problem, headers: {} } : problemOfAny(error.cause)
  const ofServer = ownProblems[codeOf(error)]
  if (ofServer !== undefined) return new Refusal(...ofServer)
  const known = CaissonError.from(error)
  const problem = problemOf(known)
  return { problem, headers: {}, ...(problem.status === 500 ? { fault: known } : {}) }
}

/** What Fastify itself refuses. */
const ownProblems: Readonly<Record<string, ConstructorParameters<typeof Refusal>>> = {
  FST_ERR_CTP_BODY_TOO_LARGE: [413, 'body_too_large', `the body is larger than ${bodyMaxBytes} bytes`],
  FST_ERR_CTP_INVALID_MEDIA_TYPE: [
    415,
    'not_json',
    'the body is not application/json',
    { remedy: 'send it with Content-Type: application/json' },
  ],
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: [
    400,
    'invalid_request',
    'the body is not as long as Content-Length says',
  ],
  FST_ERR_CTP_EMPTY_JSON_BODY: [400, 'invalid_request', 'the body is empty'],
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : ''
}

/** The remedy is a field of its own, so `detail` is without it. */
export function problemOf(error: CaissonError): Problem {
  const { code, message, remedy } = error
  const status = statuses[code]
  // The cause of an internal error is for the log alone.
  if (code === 'internal')
    return makeProblem(status, code, 'an internal error; the log of the service has the details')
  if (error instanceof WorkflowError) return makeProblem(status, code, message, errorsOf(error))
  if (remedy === undefined) return makeProblem(status, code, message)
  return makeProblem(status, code, withoutRemedy(message, remedy), { remedy: withRoutes(remedy) })
}

/** Of the same problem, what a caller reads who does not operate the service: no address or path of what it needs. */
export function problemForOthers(problem: Problem): Problem {
  if (problem.code !== 'state_unavailable') return problem
  const { remedy: _, ...rest } = problem
  const detail = 'the service cannot reach its state now; its log says why'
  return { ...rest, detail, remedy: 'try again in a minute, or ask the owner of the service' }
}

/** Each problem of a workflow, with its place. */
function errorsOf({ problems }: WorkflowError): Pick<Problem, 'errors'> {
  const errors = problems.map(({ key, path, message, line, column }) => {
    const place = [key === '' ? '' : JSON.stringify(key), path].filter((part) => part !== '').join(' ')
    const what = place === '' ? message : `${place}: ${message}`
    return { field: 'workflow', message: `line ${line}, column ${column}: ${what}` }
  })
  return errors.length === 0 ? {} : { errors }
}

/** As {@link CaissonError} joins them. */
function withoutRemedy(message: string, remedy: string): string {
  if (!message.endsWith(` ${remedy}`)) return message
  return message.slice(0, -remedy.length - 1).replace(/;$/, '')
}

/** With the routes of its commands, since a caller may have no command line. */
function withRoutes(remedy: string): string {
  const routes = [...remedy.matchAll(commandOnRun)].flatMap(([, command = '', run = '']) =>
    Object.hasOwn(routeOf, command) ? [routeOf[command]?.(run)] : [],
  )
  return routes.length === 0 ? remedy : `${remedy}; by HTTP: ${routes.join(', ')}`
}

function makeProblem(
  status: number,
  code: ProblemCode,
  detail: string,
  more: Pick<Problem, 'remedy' | 'errors'> = {},
): Problem {
  return { type: `/docs#${code}`, title: code.replaceAll('_', ' '), status, code, detail, ...more }
}
