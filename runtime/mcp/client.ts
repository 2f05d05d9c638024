/**
 * The client of one connection to an MCP server: what it offers the server, what it answers, and when the connection counts as
 * dead. Servers may ask for the roots, if there are any, and may have questions for the person, where those are heard; for
 * nothing else: no sampling.
 */
import type { Client } from '@modelcontextprotocol/sdk/client/index.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import type { ElicitRequestParams, ElicitResult } from '@modelcontextprotocol/sdk/types.js'
import { ElicitationRefusal } from './elicitation.ts'

/** A folder that a server is told it may work in. */
export interface McpRoot {
  readonly uri: string
  readonly name: string
}

export interface ClientParts {
  readonly transport: Transport
  readonly roots: readonly McpRoot[]
  readonly timeoutMs: number
  /** The server says that its tools are others now. */
  onToolsChanged(): void
  /** What the server did against the protocol, which nothing else tells of. */
  onOddity(words: string): void
  onEnd(): void
  /** A form for the person; absent: the server is told that there is nobody. @throws ElicitationRefusal, in words for the server */
  onQuestion?(params: ElicitRequestParams, signal: AbortSignal): Promise<ElicitResult>
}

export interface Live {
  readonly client: Client
  readonly transport: Transport
  /** The protocol's schemas, which are loaded with the client. */
  readonly schemas: typeof import('@modelcontextprotocol/sdk/types.js')
}

/** How long after a connection ended the library may still say why. */
const reasonGraceMs = 100
/** What a server gets to show that it lives, when a stream of it broke. */
const probeTimeoutMs = 5_000

/** Connected and ready. @throws Error that says why it is not */
export async function openClient(parts: ClientParts): Promise<Live> {
  const [{ Client }, types] = await Promise.all([
    import('@modelcontextprotocol/sdk/client/index.js'),
    import('@modelcontextprotocol/sdk/types.js'),
  ])
  const { transport, roots, timeoutMs, onQuestion } = parts
  const client = new Client(
    { name: 'caisson', version: '1' },
    {
      capabilities: {
        ...(roots.length === 0 ? {} : { roots: {} }),
        ...(onQuestion === undefined ? {} : { elicitation: { form: {} } }),
      },
      // Of answers the library's own validator has nothing to check here, and takes its time to be made.
      jsonSchemaValidator: {
        getValidator: () => (data) => ({ valid: true, data: data as never, errorMessage: undefined }),
      },
    },
  )
  client.onerror = (error) => heed(error, client, transport, parts)
  if (roots.length > 0) {
    const told = roots.map(({ uri, name }) => ({ uri, name }))
    client.setRequestHandler(types.ListRootsRequestSchema, () => ({ roots: told }))
  }
  if (onQuestion !== undefined) {
    client.setRequestHandler(types.ElicitRequestSchema, async ({ params }, { signal }) => {
      try {
        return await onQuestion(params, signal)
      } catch (cause) {
        if (!(cause instanceof ElicitationRefusal)) throw cause
        throw new types.McpError(types.ErrorCode.InvalidParams, cause.message)
      }
    })
  }
  client.fallbackRequestHandler = ({ method }) => {
    const words = `this client does not do ${method}`
    return Promise.reject(new types.McpError(types.ErrorCode.MethodNotFound, words))
  }
  client.setNotificationHandler(types.ToolListChangedNotificationSchema, () => parts.onToolsChanged())
  const ended = Promise.withResolvers<never>()
  client.onclose = () => {
    parts.onEnd()
    // A better reason may be on its way.
    setTimeout(() => ended.reject(new Error('it ended the connection')), reasonGraceMs).unref()
  }
  const late = setTimeout(() => ended.reject(new Error(`it was not ready after ${timeoutMs} ms`)), timeoutMs)
  try {
    // The library's own deadline begins when the connection is there, and it does not hear that one ends before.
    await Promise.race([client.connect(transport, { timeout: timeoutMs }), ended.promise])
  } catch (cause) {
    await client.close().catch(() => undefined)
    await transport.close().catch(() => undefined)
    throw cause
  } finally {
    clearTimeout(late)
    ended.promise.catch(() => undefined)
  }
  return { client, transport, schemas: types }
}

/** Where a stream over HTTP broke, the library waits for the answers that were to come on it: a dead server is to be noticed. */
function heed(error: Error, client: Client, transport: Transport, { onOddity }: ClientParts): void {
  // Of a server that has ended there is nothing to take back.
  if (!error.message.startsWith('Failed to send cancellation')) onOddity(error.message)
  const isBroken = /^(?:SSE error|SSE stream disconnected|Failed to (?:re)?connect|Maximum reconnection)/
  if (!isBroken.test(error.message) || client.transport !== transport) return
  client.ping({ timeout: probeTimeoutMs }).catch((cause: unknown) => {
    const isAnswer = isMcpError(cause) && cause.code !== requestTimeout && cause.code !== connectionClosed
    if (!isAnswer && client.transport === transport) client.close().catch(() => undefined)
  })
}

const requestTimeout = -32_001
const connectionClosed = -32_000

/** The server's own error, or one of the library's about a request. */
export function isMcpError(cause: unknown): cause is Error & { readonly code: number } {
  return (
    cause instanceof Error && cause.name === 'McpError' && 'code' in cause && typeof cause.code === 'number'
  )
}

/** Whether the time for a request was over. */
export function isTimeout(cause: unknown): boolean {
  return isMcpError(cause) && cause.code === requestTimeout
}
