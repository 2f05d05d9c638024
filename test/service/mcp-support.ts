// MCP clients of the official SDK before a served host, in both revisions, and requests as any program sends them.
import { randomBytes } from 'node:crypto'
import { Client, StreamableHTTPClientTransport, type Transport } from '@modelcontextprotocol/client'
import { onTestFinished } from 'vitest'
import { ServiceClient } from '../../client/index.ts'
import { sanitizeLine, sanitizeWhole } from '../../host/cli/render/sanitize.ts'
import {
  type CaissonMcpOptions,
  CallSlots,
  createCaissonServer,
  type McpHttpOptions,
  McpHttpServer,
} from '../../host/mcp-server/index.ts'

export const revisions = ['2025-11-25', '2026-07-28'] as const
export type Revision = (typeof revisions)[number]

/** What a client shows its person. */
export interface ShownForm {
  readonly message: string
  readonly properties: Readonly<Record<string, { readonly enum?: readonly string[]; readonly type?: string }>>
}
export type FormResponse = {
  action: 'accept' | 'decline' | 'cancel'
  content?: Record<string, string | number | boolean | string[]>
}

/** Call it from within a test. @param serviceUrl of a served host; @param create absent: the server of Caisson */
export async function startMcp(
  serviceUrl: string,
  { stateKey = randomBytes(32), create }: { stateKey?: Uint8Array; create?: McpHttpOptions['create'] } = {},
): Promise<McpHttpServer> {
  const options: CaissonMcpOptions = {
    ...{ version: '0.0.0-test', stateKey, slots: new CallSlots() },
    clean: { line: sanitizeLine, block: (text) => sanitizeWhole(text) },
  }
  const server = await McpHttpServer.start({
    port: 0,
    log: () => undefined,
    serviceOf: (token) => new ServiceClient({ baseUrl: serviceUrl, token }),
    create: create ?? ((caller) => createCaissonServer(options, caller)),
  })
  onTestFinished(() => server.close())
  return server
}

export interface ClientOptions {
  readonly revision: Revision
  /** Answers the forms of questions. Absent: the client shows none. */
  readonly onForm?: (form: ShownForm) => FormResponse | Promise<FormResponse>
}

/** Call it from within a test. */
export async function connectMcp(transport: Transport, { revision, onForm }: ClientOptions): Promise<Client> {
  const client = new Client(
    { name: 'test-client', version: '1.0.0' },
    {
      capabilities: {
        ...(onForm === undefined ? {} : { elicitation: { form: {} } }),
      },
      versionNegotiation: { mode: revision === '2025-11-25' ? 'legacy' : { pin: revision } },
    },
  )
  if (onForm !== undefined)
    client.setRequestHandler('elicitation/create', async ({ params }) => {
      const { message, requestedSchema } = params as unknown as {
        message: string
        requestedSchema: ShownForm
      }
      return await onForm({ message, properties: requestedSchema.properties })
    })
  onTestFinished(() => client.close())
  await client.connect(transport)
  return client
}

export function httpTransport(url: string, secret: string): StreamableHTTPClientTransport {
  return new StreamableHTTPClientTransport(new URL(url), {
    requestInit: { headers: { authorization: `Bearer ${secret}` } },
  })
}

/** `tools/call` as a program sends it in the revision 2026-07-28. */
export async function sendCall(
  url: string,
  secret: string,
  params: Readonly<Record<string, unknown>>,
  {
    method = 'tools/call',
    headers = {},
    extensions = {},
  }: { method?: string; headers?: Record<string, string>; extensions?: object } = {},
): Promise<{
  status: number
  json: { result?: Record<string, unknown>; error?: { code: number; message: string } }
}> {
  const meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientInfo': { name: 'raw', version: '1' },
    'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} }, extensions },
  }
  const name = params.name ?? params.taskId
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      ...{
        authorization: `Bearer ${secret}`,
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
      },
      ...{ 'mcp-protocol-version': '2026-07-28', 'mcp-method': method },
      ...(typeof name === 'string' ? { 'mcp-name': name } : {}),
      ...headers,
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: { ...params, _meta: meta } }),
  })
  const text = await response.text()
  const data = /^data: (.*)$/m.exec(text)?.[1] ?? text
  return { status: response.status, json: JSON.parse(data) }
}
