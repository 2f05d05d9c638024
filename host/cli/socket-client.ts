/** Calls of the HTTP API to the service of this user, over its Unix socket. What it refuses becomes an error of ours. */
import { Agent, fetch as fetchOverSocket } from 'undici'
import { CaissonError, type ErrorCode, errorCodes, errorMessage } from '#specs/errors.ts'
import { routes } from '#specs/service/routes.ts'
import {
  type EventsOptions,
  type RouteName,
  type ServiceCall,
  ServiceClient,
  ServiceError,
  type ServiceEvent,
  type ServiceReply,
} from '../../client/index.ts'
import { isNotThere, type LocalService, whyUnused } from './local-service.ts'

/** What errors of the service's own become; those of ours keep their code. */
const codeOfStatus: Readonly<Record<number, ErrorCode>> = {
  400: 'invalid_options',
  404: 'run_not_found',
  409: 'not_possible_now',
  429: 'not_possible_now',
}

const defaultRemedy = 'look at the run with caisson runs show, and at the log of caisson serve'

/** What a request was for, where its connection breaks. */
interface Sent {
  /** It asks for something to be done. */
  readonly changes: boolean
  readonly run: string | undefined
}

/**
 * `fetch` over a Unix socket, whatever host an address names. An answer may take as long as the service works on it, such as
 * a fork on another host: `ServiceClient` looks whether the service is still there. Streams have a heartbeat.
 */
export function fetchOver(socketPath: string): typeof fetch {
  const dispatcher = new Agent({ connect: { socketPath }, headersTimeout: 0 })
  return ((input: URL, init: object) =>
    fetchOverSocket(input, { ...init, dispatcher })) as unknown as typeof fetch
}

export class SocketClient {
  readonly #client: ServiceClient
  readonly #socket: string

  constructor({ socket, token }: Pick<LocalService, 'socket' | 'token'>) {
    this.#client = new ServiceClient({ baseUrl: 'http://localhost', token, fetch: fetchOver(socket) })
    this.#socket = socket
  }

  /** @throws {CaissonError} what the service says, with its error as the cause; `connection_lost` */
  async call<N extends RouteName>(name: N, given: ServiceCall<N>): Promise<ServiceReply<N>> {
    try {
      return await this.#client.call(name, given)
    } catch (error) {
      const { params } = given as { readonly params?: { readonly run?: string } }
      throw this.#errorOf(error, { changes: routes[name].method !== 'GET', run: params?.run })
    }
  }

  /** As `ServiceClient.events`, with errors as of {@link call}. */
  async *events(run: string, options: EventsOptions): AsyncGenerator<ServiceEvent, void> {
    try {
      yield* this.#client.events(run, options)
    } catch (error) {
      throw this.#errorOf(error, { changes: false, run })
    }
  }

  #errorOf(cause: unknown, sent: Sent): CaissonError {
    if (!(cause instanceof ServiceError) || cause.code === 'no_answer')
      return this.#errorOfBroken(cause, sent)
    const { status, code: given, detail, remedy } = cause.problem
    const isOurs = Object.hasOwn(errorCodes, given)
    const code = isOurs ? (given as ErrorCode) : (codeOfStatus[status] ?? 'internal')
    const isOfRun = isOurs && status >= 400 && status < 500
    return new CaissonError(code, isOfRun ? detail : `the service on ${this.#socket} refused: ${detail}`, {
      cause,
      // Who is at a command line needs no route.
      remedy: remedy?.replace(/; by HTTP: .*$/s, '') ?? defaultRemedy,
    })
  }

  /** Without an answer. What had been sent by then may have been done. */
  #errorOfBroken(cause: unknown, { changes, run }: Sent): CaissonError {
    const seen = cause instanceof Error && cause.cause instanceof Error ? cause.cause : cause
    const isSilent = cause instanceof ServiceError
    const process = isSilent
      ? 'whether the process of caisson serve is stopped'
      : 'whether caisson serve runs'
    const why = isSilent
      ? `the service on ${this.#socket} accepts connections, but does not answer`
      : whyUnused(this.#socket, seen)
    if (!changes || isNotThere(seen))
      return new CaissonError('connection_lost', why, {
        cause,
        remedy: `see ${process}, then repeat the command`,
      })
    const broke = isSilent ? why : `the service on ${this.#socket} broke off: ${errorMessage(seen)}`
    return new CaissonError('connection_lost', `${broke}; it may have done what was asked`, {
      cause,
      remedy: `see ${process}, and before you repeat the command, whether it was done: caisson runs ${run === undefined ? 'list' : `show ${run}`}`,
    })
  }
}
