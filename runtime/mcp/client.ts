/**
 * The client side of one connection to an MCP server: its revision, its capabilities, its answers, and detection of a
 * dead connection. Servers may request the roots, if any, and ask the person questions, if supported. Sampling is refused.
 */
import type {
  Client,
  ElicitRequestParams,
  ElicitResult,
  McpSubscription,
  Transport,
} from '@modelcontextprotocol/client'
import { ElicitationRefusal } from './elicitation.ts'

/** A folder that a server may work in. */
export interface McpRoot {
  readonly uri: string
  readonly name: string
}

interface ClientParts {
  readonly transport: Transport
  readonly roots: readonly McpRoot[]
  readonly timeoutMs: number
  /** Skips the question for the revision: the server is known to speak only those up to 2025-11-25. */
  readonly isOlder: boolean
  /** The server reports that its tools changed. */
  onToolsChanged(): void
  /** A protocol violation by the server that nothing else reports. */
  onOddity(words: string): void
  onEnd(): void
  /**
   * Shows a form to the person; absent: the server learns that nobody is there. @throws {ElicitationRefusal} with
   * text for the server
   */
  onQuestion?(params: ElicitRequestParams, signal: AbortSignal): Promise<ElicitResult>
}

export type McpLibrary = typeof import('@modelcontextprotocol/client')

export interface Live {
  readonly client: Client
  readonly transport: Transport
  /** Loaded with the client. */
  readonly library: McpLibrary
  /** Whether a change of the tools is reported, so that a list may be kept. */
  hearsOfChanges(): boolean
}

/** The program ended when it was asked for its revision, as servers of 2025-11-25 and before may. */
export class ProbeEndedError extends Error {}

/** How long after a disconnect the library may still report the reason. */
const reasonGraceMs = 100
/** How long a server has to show that it is alive after a stream broke. */
const probeTimeoutMs = 5_000
/** How long a program has to say which revisions it speaks. In an emulated VM it loads slowly. */
const revisionTimeoutMs = 5_000
/** Rounds of questions within one request, in 2026-07-28. */
const questionRoundsMax = 16

/** Connected and ready. @throws {ProbeEndedError} @throws {Error} with the reason if not */
export async function openClient(parts: ClientParts): Promise<Live> {
  const library = await import('@modelcontextprotocol/client')
  const { transport, timeoutMs } = parts
  const client = createClient(library, parts)
  const ended = Promise.withResolvers<never>()
  client.onclose = () => {
    parts.onEnd()
    // A better reason may follow.
    setTimeout(() => ended.reject(new Error('it ended the connection')), reasonGraceMs).unref()
  }
  // Until the revision is known, nobody else listens.
  transport.onerror = (error) => parts.onOddity(error.message)
  const late = setTimeout(() => ended.reject(new Error(`it was not ready after ${timeoutMs} ms`)), timeoutMs)
  try {
    // The library's own deadline starts after the connection, and it does not notice an earlier end.
    await Promise.race([client.connect(transport, { timeout: timeoutMs }), ended.promise])
  } catch (cause) {
    await client.close().catch(() => undefined)
    await transport.close().catch(() => undefined)
    if ('pid' in transport && isProbeEnd(cause)) throw new ProbeEndedError(cause.message)
    throw cause
  } finally {
    clearTimeout(late)
    ended.promise.catch(() => undefined)
  }
  return { client, transport, library, hearsOfChanges: watchChanges(client, parts) }
}

function createClient(library: McpLibrary, parts: ClientParts): Client {
  const { transport, roots, isOlder, onQuestion } = parts
  const client = new library.Client(
    { name: 'caisson', version: '1' },
    {
      capabilities: {
        ...(roots.length === 0 ? {} : { roots: {} }),
        ...(onQuestion === undefined ? {} : { elicitation: { form: {} } }),
      },
      versionNegotiation: { mode: isOlder ? 'legacy' : 'auto', probe: { timeoutMs: probeTimeoutOf(parts) } },
      inputRequired: { maxRounds: questionRoundsMax },
      listChanged: {
        tools: { autoRefresh: false, debounceMs: 0, onChanged: () => parts.onToolsChanged() },
      },
      // The library's own validator has nothing to check in these answers and is slow to create.
      jsonSchemaValidator: {
        getValidator: () => (data) => ({ valid: true, data: data as never, errorMessage: undefined }),
      },
    },
  )
  client.onerror = (error) => heed(error, client, transport, parts)
  const { ProtocolError, ProtocolErrorCode } = library
  if (roots.length > 0) {
    const told = roots.map(({ uri, name }) => ({ uri, name }))
    client.setRequestHandler('roots/list', () => ({ roots: told }))
  }
  if (onQuestion !== undefined) {
    client.setRequestHandler('elicitation/create', async ({ params }, { mcpReq }) => {
      try {
        return await onQuestion(params, mcpReq.signal)
      } catch (cause) {
        if (!(cause instanceof ElicitationRefusal)) throw cause
        throw new ProtocolError(ProtocolErrorCode.InvalidParams, cause.message)
      }
    })
  }
  client.fallbackRequestHandler = ({ method }) =>
    Promise.reject(new ProtocolError(ProtocolErrorCode.MethodNotFound, `this client does not do ${method}`))
  return client
}

/** A program that leaves the question unanswered has the rest of the time for the older handshake; an address fails. */
function probeTimeoutOf({ transport, timeoutMs }: ClientParts): number {
  return 'pid' in transport ? Math.min(revisionTimeoutMs, timeoutMs / 3) : timeoutMs
}

/** In 2026-07-28 changes are reported on a stream of its own, which may end before the connection. */
function watchChanges(client: Client, { onToolsChanged }: ClientParts): () => boolean {
  if (client.getProtocolEra() !== 'modern') return () => true
  const subscription: McpSubscription | undefined = client.autoOpenedSubscription
  const changes = client.getServerCapabilities()?.tools?.listChanged === true
  let isOpen = subscription !== undefined
  void subscription?.closed.then(() => {
    isOpen = false
    onToolsChanged()
  })
  return () => !changes || isOpen
}

/** After a broken HTTP stream the library waits for its answers: a dead server must be detected. */
function heed(error: Error, client: Client, transport: Transport, { onOddity }: ClientParts): void {
  // A server that has ended has nothing to cancel.
  if (!error.message.startsWith('Failed to send cancellation')) onOddity(error.message)
  const isBroken = /^(?:SSE error|SSE stream disconnected|Failed to (?:re)?connect|Maximum reconnection)/
  if (!isBroken.test(error.message) || client.transport !== transport) return
  const bounds = { timeout: probeTimeoutMs }
  const asked = client.getProtocolEra() === 'modern' ? client.discover(bounds) : client.ping(bounds)
  asked.catch((cause: unknown) => {
    if (!isServersError(cause) && client.transport === transport) client.close().catch(() => undefined)
  })
}

/** The server's own error as the answer to a request. */
export function isServersError(cause: unknown): cause is Error & { readonly code: number } {
  return (
    cause instanceof Error &&
    cause.name === 'ProtocolError' &&
    'code' in cause &&
    typeof cause.code === 'number'
  )
}

/** Whether the request timed out. */
export function isTimeout(cause: unknown): boolean {
  return codeOf(cause) === 'REQUEST_TIMEOUT'
}

/** Failures of one request that say nothing about the connection. */
const ofOneRequest: ReadonlySet<string> = new Set([
  'REQUEST_TIMEOUT',
  'INVALID_RESULT',
  'UNSUPPORTED_RESULT_TYPE',
  'CAPABILITY_NOT_SUPPORTED',
  'INPUT_REQUIRED_ROUNDS_EXCEEDED',
  'METHOD_NOT_SUPPORTED_BY_PROTOCOL_VERSION',
])

/** Whether the server answered, or only this request failed. */
export function isOfOneRequest(cause: unknown): boolean {
  return isServersError(cause) || ofOneRequest.has(codeOf(cause) ?? '')
}

function isProbeEnd(cause: unknown): cause is Error {
  return codeOf(cause) === 'ERA_NEGOTIATION_FAILED' || codeOf(cause) === 'CONNECTION_CLOSED'
}

function codeOf(cause: unknown): string | undefined {
  return cause instanceof Error && 'code' in cause && typeof cause.code === 'string' ? cause.code : undefined
}
