/**
 * The client of the conformance suite: our own connection, driven as a scenario asks. The suite gives the server's address as
 * the last argument and the scenario's name in the environment; what it saw the client do is what counts.
 */
import { McpConnection } from '../../../mcp/connection.ts'
import type { AskPerson } from '../../../mcp/elicitation.ts'

const url = process.argv.at(-1) ?? ''
const scenario = process.env.MCP_CONFORMANCE_SCENARIO ?? ''
const signal = AbortSignal.timeout(20_000)

interface Call {
  readonly name: string
  readonly arguments?: Record<string, unknown>
}

/** Calls that the suite asks for, in its order; null: each tool once. */
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}') as { toolCalls?: readonly Call[] }

/** A person who takes whatever is proposed, and says yes. */
const ask: AskPerson = ({ defaultAnswer, kind }) =>
  Promise.resolve(defaultAnswer ?? (kind === 'confirm' ? true : null))

const connection = new McpConnection(
  'conformance',
  { transport: 'streamable-http', url },
  { hasPerson: true },
)
const listed = await connection.listTools()
if (!listed.ok) {
  process.stderr.write(`${listed.error}\n`)
  process.exitCode = 1
} else {
  const each = listed.value.map(({ name }) => ({ name, arguments: argumentsOf(name) }))
  for (const call of scenario === 'initialize' ? [] : (context.toolCalls ?? each)) {
    const result = await connection.callTool(call.name, call.arguments ?? {}, signal, undefined, ask)
    process.stdout.write(`${call.name}: ${result.content.slice(0, 200)}\n`)
  }
}
await connection.close()

function argumentsOf(name: string): Record<string, unknown> {
  if (name === 'add_numbers') return { a: 5, b: 3 }
  // The schema as it arrived.
  const [first] = listed.ok ? listed.value.filter((tool) => tool.name !== name) : []
  return name === 'json_schema_echo' ? { schema: first?.inputSchema } : {}
}
