/**
 * The routes of the service without a request, for other protocols that are fronts of it: each call has the scope, the
 * schemas, the ownership and the bounds of its route, so that no protocol is a second way in.
 */
import type * as z from 'zod'
import { plainMessages } from '#specs/protocol/issue-text.ts'
import type { Route } from '#specs/service/route.ts'
import { type RouteName, routes } from '#specs/service/routes.ts'
import { type ServiceCall, ServiceError, type ServiceEvent, type ServiceReply } from '../../client/index.ts'
import type { RunService } from '../run-view/run-view.ts'
import type { Caller } from './callers.ts'
import type { RunEvents } from './events.ts'
import type { Answer, Call, Handlers } from './handler.ts'
import { requireLinked } from './links.ts'
import { type Ownership, requireScope } from './ownership.ts'
import { problemOfAny, Refusal } from './problems.ts'

/** What a route is called with, before its schemas. */
export interface Given {
  readonly params?: unknown
  readonly query?: unknown
  readonly body?: unknown
}

export interface RouteParts {
  readonly handlers: Handlers
  readonly ownership: Ownership
  /** The id of a run of a path, which may have the key of its caller. @throws {CaissonError} `run_not_found` */
  readonly runIdOf: (caller: Caller, name: string) => Promise<string>
}

/** What of {@link Given} fits the schemas of the route. @throws {Refusal} 400 with each wrong field */
export function checkGiven(route: Route, { params, query, body }: Given) {
  return {
    params: route.params && parse('params', route.params, params),
    query: parse('query', route.query, query),
    body: parse('body', route.body, body),
  }
}

/**
 * The id of a run that the caller may see. @param name an id, or a key of the caller
 * @throws {CaissonError} `run_not_found`, also for a run of somebody else
 */
export async function requireRun(
  { ownership, runIdOf }: Pick<RouteParts, 'ownership' | 'runIdOf'>,
  caller: Caller,
  name: string,
): Promise<string> {
  const id = await runIdOf(caller, name)
  await ownership.require(caller, id)
  return id
}

/** Does what a route does, once its caller may. @throws {CaissonError} `run_not_found` for a run of somebody else */
export async function perform(
  parts: RouteParts,
  name: RouteName,
  checked: ReturnType<typeof checkGiven>,
  call: Call,
): Promise<Answer<unknown>> {
  const { run } = (checked.params ?? {}) as { run?: string }
  const given =
    run === undefined
      ? checked
      : {
          ...checked,
          params: { ...(checked.params as object), run: await requireRun(parts, call.caller, run) },
        }
  const handler = parts.handlers[name] as (given: typeof checked, call: Call) => Promise<Answer<unknown>>
  return await handler(given, call)
}

/** The service as one caller may use it, within one request. Refusals are those that the routes answer with. */
export class RouteCalls implements RunService {
  readonly #parts: RouteParts & { readonly events: RunEvents }
  readonly #caller: Caller
  /** Of the request. */
  readonly #signal: AbortSignal

  constructor(parts: RouteParts & { readonly events: RunEvents }, caller: Caller, signal: AbortSignal) {
    this.#parts = parts
    this.#caller = caller
    this.#signal = signal
  }

  async call<N extends RouteName>(name: N, given: ServiceCall<N>): Promise<ServiceReply<N>> {
    const {
      idempotencyKey,
      signal = this.#signal,
      ...sent
    } = given as Given & {
      idempotencyKey?: string
      signal?: AbortSignal
    }
    return (await this.#answer(name, async () => {
      const checked = this.#check(name, sent)
      const call = { caller: this.#caller, idempotencyKey, ifNoneMatch: undefined, signal }
      return (await perform(this.#parts, name, checked, call)).body
    })) as ServiceReply<N>
  }

  async *events(
    run: string,
    { from = 1, signal = this.#signal }: { readonly from?: number; readonly signal?: AbortSignal } = {},
  ): AsyncGenerator<ServiceEvent, void, undefined> {
    const items = await this.#answer('listEvents', async () => {
      this.#check('listEvents', { params: { run }, query: { from } })
      const id = await requireRun(this.#parts, this.#caller, run)
      return await this.#parts.events.items(id, from, signal)
    })
    yield* items as AsyncGenerator<ServiceEvent>
  }

  #check(name: RouteName, given: Given) {
    const route: Route = routes[name]
    if (route.scope !== null) requireScope(this.#caller, route.scope)
    requireLinked(this.#caller, name, given.params)
    return checkGiven(route, given)
  }

  async #answer<T>(name: RouteName, work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      const { problem, headers } = problemOfAny(error)
      // A fault of the service stays one, for its log.
      if (problem.status === 500) throw error
      throw Object.assign(new ServiceError(problem), { cause: error, route: name, headers })
    }
  }
}

function parse<S extends z.ZodType>(
  place: string,
  schema: S | undefined,
  value: unknown,
): z.output<S> | undefined {
  if (schema === undefined) return undefined
  const parsed = schema.safeParse(value ?? (place === 'body' ? undefined : {}), plainMessages)
  if (parsed.success) return parsed.data
  const errors = parsed.error.issues.slice(0, 20).map(({ path, message }) => ({
    field: path.length === 0 ? place : path.map(String).join('.'),
    message,
  }))
  const first = errors[0]
  const what = place === 'body' ? 'the body' : place === 'query' ? 'the query' : 'the path'
  throw new Refusal(400, 'invalid_request', `${what} does not fit: ${first?.field}: ${first?.message}`, {
    errors,
    remedy: 'see the schema in /docs',
  })
}
