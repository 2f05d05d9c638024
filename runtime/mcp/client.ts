/**
 * The client side of one connection to an MCP server: its capabilities, its answers, and detection of a dead
 * connection. Servers may request the roots, if any, and ask the person questions, if supported. Sampling is refused.
 */
import type { Client } from '@modelcontextprotocol/sdk/client/index.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import type { ElicitRequestParams, ElicitResult } from '@modelcontextprotocol/sdk/types.js'
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

export interface Live {
  readonly client: Client
  readonly transport: Transport
  /** The protocol's schemas, loaded with the client. */
  readonly schemas: typeof import('@modelcontextprotocol/sdk/types.js')
}

/** How long after a disconnect the library may still report the reason. */
const reasonGraceMs = 100
/** How long a server has to show that it is alive after a stream broke. */
const probeTimeoutMs = 5_000

/** Connected and ready. @throws {Error} with the reason if not */
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
      // The library's own validator has nothing to check in these answers and is slow to create.
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
    // A better reason may follow.
    setTimeout(() => ended.reject(new Error('it ended the connection')), reasonGraceMs).unref()
  }
  const late = setTimeout(() => ended.reject(new Error(`it was not ready after ${timeoutMs} ms`)), timeoutMs)
  try {
    // The library's own deadline starts after the connection, and it does not notice an earlier end.
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

/** After a broken HTTP stream the library waits for its answers: a dead server must be detected. */
function heed(error: Error, client: Client, transport: Transport, { onOddity }: ClientParts): void {
  // A server that has ended has nothing to cancel.
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

/** Whether the request timed out. */
export function isTimeout(cause: unknown): boolean {
  return isMcpError(cause) && cause.code === requestTimeout
}
