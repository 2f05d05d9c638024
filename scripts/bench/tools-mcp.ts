/**
 * Duration of an MCP tool call with our client, compared with the SDK's client on the same server in the same run.
 * Each has its own server process; their calls alternate.
 */
import path from 'node:path'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { McpConnection } from '../../runtime/mcp/connection.ts'
import type { Figures } from './bench.ts'
import { figureOf, repeats, reportProgress, round } from './figures.ts'

const server = path.join(
  import.meta.dirname,
  '../../node_modules/@modelcontextprotocol/server-everything/dist/index.js',
)
const samples = repeats(500)
const warmUpSamples = repeats(100)
const message = 'x'.repeat(1_000)

export async function measureMcp(): Promise<Figures> {
  reportProgress(`${samples} calls of an MCP server, by our client and by the SDK's`)
  const signal = new AbortController().signal
  const ours = new McpConnection('everything', {
    transport: 'stdio',
    command: process.execPath,
    args: [server, 'stdio'],
  })
  const sdk = new Client({ name: 'bench', version: '1' }, { capabilities: {} })
  try {
    await sdk.connect(
      new StdioClientTransport({ command: process.execPath, args: [server, 'stdio'], stderr: 'ignore' }),
    )
    const found = { ours: [] as number[], sdk: [] as number[] }
    const callOurs = async (): Promise<void> => {
      const { ok, content } = await ours.callTool('echo', { message }, signal, () => Promise.resolve(null))
      if (!ok) throw new Error(content)
    }
    const callSdk = async (): Promise<void> => {
      await sdk.callTool({ name: 'echo', arguments: { message } })
    }
    for (let count = -warmUpSamples; count < samples; count++) {
      // The second one finds the processor awake.
      const isOursFirst = count % 2 === 0
      const first = await timed(isOursFirst ? callOurs : callSdk)
      const second = await timed(isOursFirst ? callSdk : callOurs)
      if (count < 0) continue
      found.ours.push(isOursFirst ? first : second)
      found.sdk.push(isOursFirst ? second : first)
    }
    const mcpCallMs = figureOf(found.ours)
    const mcpSdkCallMs = figureOf(found.sdk)
    return { mcpCallMs, mcpSdkCallMs, mcpOverSdk: round(mcpCallMs.p50 / mcpSdkCallMs.p50) }
  } finally {
    await ours.close()
    await sdk.close()
  }
}

async function timed(work: () => Promise<void>): Promise<number> {
  const before = performance.now()
  await work()
  return performance.now() - before
}
