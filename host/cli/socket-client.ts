/** Calls of the HTTP API to the service of this user, over its Unix socket. What it refuses becomes an error of ours. */
import { Agent, fetch as fetchOverSocket } from 'undici'
import { CaissonError, type ErrorCode, errorCodes } from '#specs/errors.ts'
import {
  type EventsOptions,
  type RouteName,
  type ServiceCall,
  ServiceClient,
  ServiceError,
  type ServiceEvent,
  type ServiceReply,
} from '../../client/index.ts'
import { type LocalService, whyUnused } from './local-service.ts'

/** What errors of the service's own become; those of ours keep their code. */
const codeOfStatus: Readonly<Record<number, ErrorCode>> = {
  400: 'invalid_options',
  404: 'run_not_found',
  409: 'not_possible_now',
  429: 'not_possible_now',
}

const defaultRemedy = 'look at the run with caisson runs show, and at the log of caisson serve'

/** `fetch` over a Unix socket, whatever host an address names. */
export function fetchOver(socketPath: string): typeof fetch {
  const dispatcher = new Agent({ connect: { socketPath } })
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
      throw this.#errorOf(error)
    }
  }

  /** As `ServiceClient.events`, with errors as of {@link call}. */
  async *events(run: string, options: EventsOptions): AsyncGenerator<ServiceEvent, void> {
    try {
      yield* this.#client.events(run, options)
    } catch (error) {
      throw this.#errorOf(error)
    }
  }

  #errorOf(cause: unknown): CaissonError {
    if (!(cause instanceof ServiceError)) {
      const seen = cause instanceof Error && cause.cause instanceof Error ? cause.cause : cause
      return new CaissonError('connection_lost', whyUnused(this.#socket, seen), {
        cause,
        remedy: 'see whether caisson serve runs, then repeat the command',
      })
    }
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
}
