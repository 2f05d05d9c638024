/** Turns a server's tools into the agent's tools; marks its schemas, descriptions and answers as untrusted. */
import * as z from 'zod'
import { defineTool, type Tool } from '../tool-calls/tool.ts'
import { type Definition, quoteServer, type RunServer } from './run-server.ts'

export const ServerText = z.strictObject({ text: z.string() })

interface ServerToolParts {
  readonly server: RunServer
  /** Name for the model. */
  readonly name: string
  readonly definition: Definition
  readonly caller: {
    readonly connection: Parameters<RunServer['call']>[2]['connection']
    readonly agentPath: string
  }
  /** Whether a rule requires approval for every call. */
  readonly asksAll: boolean
}

export function createServerTool({ server, name, definition, caller, asksAll }: ServerToolParts): Tool {
  const { info, schema } = definition
  const readOnly = server.config.trustHints === true && info.readOnlyHint
  return defineTool({
    name,
    description: `[Tool ${JSON.stringify(info.name)} of the MCP server ${server.name}, in its words] ${info.description}`,
    // Uses the definition at the time of the call; it may have changed since the run began.
    inputSchema: z.record(z.string(), z.json()).superRefine((input, context) => {
      const checked = server.definition(info.name)?.schema?.check(input)
      if (checked?.ok === false) context.addIssue({ code: 'custom', message: checked.error })
    }),
    outputSchema: ServerText,
    // Such a server acts outside of the VM.
    requiresApproval: asksAll || (!server.isProgram && !readOnly),
    readOnly,
    runs: 'server',
    // A schema that cannot be checked guarantees nothing.
    parameters: schema === null ? { type: 'object' } : withoutDialect(info.inputSchema),
    execute: (input, { signal, askUser }) => server.call(info.name, input, { ...caller, signal, askUser }),
    render: ({ text }) => quoteServer(text),
  })
}

/** Providers accept an object schema without `$schema`. */
function withoutDialect({
  $schema: _,
  ...schema
}: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  return { ...schema, type: 'object' }
}
