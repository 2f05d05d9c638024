/**
 * The client of the conformance suite: our own connection, driven as a scenario asks. The suite gives the server's address as
 * the last argument and the scenario's name in the environment; what it saw the client do is what counts.
 */
import { McpConnection } from '../../../mcp/connection.ts'
import type { AskPerson } from '../../../mcp/elicitation.ts'

const url = process.argv.at(-1) ?? ''
const scenario = process.env.MCP_CONFORMANCE_SCENARIO ?? ''
const signal = AbortSignal.timeout(20_000)

/** A person who takes whatever is proposed. */
const ask: AskPerson = ({ defaultAnswer }) => Promise.resolve(defaultAnswer ?? null)

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
  for (const { name } of scenario === 'initialize' ? [] : listed.value) {
    const input = name === 'add_numbers' ? { a: 5, b: 3 } : {}
    const result = await connection.callTool(name, input, signal, undefined, ask)
    process.stdout.write(`${name}: ${result.content.slice(0, 200)}\n`)
  }
}
await connection.close()
