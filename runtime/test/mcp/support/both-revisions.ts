// An MCP server of the official library, which speaks 2025-11-25 and 2026-07-28. The tool `greet` asks for a name, `grow`
// adds a tool.
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createMcpHandler, inputRequired, inputResponse, McpServer } from '@modelcontextprotocol/server'
import { serveStdio } from '@modelcontextprotocol/server/stdio'
import * as z from 'zod'

const requestedSchema = {
  type: 'object' as const,
  properties: { name: { type: 'string' as const } },
  required: ['name'],
}

export function createBoth(): McpServer {
  const server = new McpServer(
    { name: 'both', version: '1' },
    { capabilities: { tools: { listChanged: true } } },
  )
  server.registerTool('greet', { description: 'Greets', inputSchema: z.object({}) }, (_given, { mcpReq }) => {
    const answer = inputResponse(mcpReq.inputResponses, 'name')
    if (answer.kind === 'missing')
      return inputRequired({
        inputRequests: { name: inputRequired.elicit({ message: 'What is your name?', requestedSchema }) },
      }) as never
    return { content: [{ type: 'text', text: JSON.stringify(answer) }] }
  })
  server.registerTool('grow', { description: 'Grows', inputSchema: z.object({}) }, () => {
    server.registerTool('more', { description: 'More', inputSchema: z.object({}) }, () => ({ content: [] }))
    return { content: [{ type: 'text', text: 'grown' }] }
  })
  return server
}

/** Over HTTP, on a free port. */
export async function serveBoth(): Promise<
  AsyncDisposable & { readonly url: string; readonly revisions: Set<string> }
> {
  const revisions = new Set<string>()
  const handler = createMcpHandler(() => createBoth())
  const http = createServer((request, response) => {
    const revision = request.headers['mcp-protocol-version']
    if (typeof revision === 'string') revisions.add(revision)
    void bodyOf(request)
      .then((body) =>
        handler.fetch(
          new Request(`http://127.0.0.1${request.url}`, {
            method: request.method ?? 'GET',
            headers: request.headers as Record<string, string>,
            ...(body === '' ? {} : { body }),
          }),
        ),
      )
      .then(async (answer) => {
        response.writeHead(answer.status, Object.fromEntries(answer.headers))
        for await (const piece of answer.body ?? []) response.write(piece)
        response.end()
      })
      .catch(() => response.destroy())
  })
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`,
    revisions,
    [Symbol.asyncDispose]: async () => {
      http.closeAllConnections()
      await new Promise((resolve) => http.close(resolve))
    },
  }
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  let text = ''
  for await (const piece of request.setEncoding('utf8')) text += piece
  return text
}

if (process.argv[1] === import.meta.filename) serveStdio(() => createBoth())
