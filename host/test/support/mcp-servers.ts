/** MCP servers as files that a workspace can have: reference servers, each bundled into one, and a small one of our own. */
import path from 'node:path'
import { build } from 'esbuild'

const modules = path.join(import.meta.dirname, '../../../node_modules/@modelcontextprotocol')

/** One of MCP's reference servers, `filesystem` or `memory`, as a module for Node without any other. */
export async function bundleServer(name: string): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [path.join(modules, `server-${name}/dist/index.js`)],
    bundle: true,
    write: false,
    format: 'esm',
    platform: 'node',
    target: 'node24',
    minify: true,
    banner: {
      js: "import{createRequire as madeRequire}from'node:module';const require=madeRequire(import.meta.url);",
    },
    logLevel: 'silent',
  })
  return outputFiles[0]?.text ?? ''
}

/**
 * A server that will not end: it ignores the end of its input and the signals that it can, and writes to a file
 * `/tmp/beats-…` of its own as long as it lives. Its tool `beat` tells where it works, and asks the person first.
 */
export const stubbornServer = `
import { randomUUID } from 'node:crypto'
import { appendFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
process.on('SIGTERM', () => {})
const beats = '/tmp/beats-' + randomUUID()
setInterval(() => appendFileSync(beats, '.'), 200)
const write = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\\n')
const send = (id, result) => write({ id, result })
const requestedSchema = { type: 'object', properties: { loud: { type: 'boolean', default: true } } }
createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params, result } = JSON.parse(line)
  if (method === undefined && result)
    send(Number(id.slice(1)), { content: [{ type: 'text', text: process.cwd() + ' as ' + process.getuid() + ': ' + JSON.stringify(result) }] })
  if (method === 'initialize')
    send(id, { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'b', version: '1' } })
  if (method === 'tools/list') send(id, { tools: [{ name: 'beat', description: 'Beats', inputSchema: { type: 'object' } }] })
  if (method === 'tools/call')
    write({ id: 'q' + id, method: 'elicitation/create', params: { message: 'May I?', requestedSchema } })
  if (method === 'server/discover') write({ id, error: { code: -32601, message: 'Method not found' } })
})
`

/** A server with one tool, `where`, that tells which file it runs from. A program by itself, in CommonJS. */
export const whereServer = `#!/usr/bin/env node
const { createInterface } = require('node:readline')
const send = (id, result) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, result }) + '\\n')
createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line)
  if (method === 'initialize')
    send(id, { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'w', version: '1' } })
  if (method === 'tools/list')
    send(id, { tools: [{ name: 'where', description: 'Where', inputSchema: { type: 'object' } }] })
  if (method === 'tools/call') send(id, { content: [{ type: 'text', text: 'runs from ' + __filename }] })
})
`
