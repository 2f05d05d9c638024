/** The tools of a server as the agent has them: its schema, its words, its answers, each marked as a stranger's. */
import * as z from 'zod'
import { defineTool, type Tool } from '../tool-calls/tool.ts'
import { type Definition, quoteServer, type RunServer } from './run-server.ts'

export const ServerText = z.strictObject({ text: z.string() })

export interface ServerToolParts {
  readonly server: RunServer
  /** What the model calls it. */
  readonly name: string
  readonly definition: Definition
  readonly caller: {
    readonly connection: Parameters<RunServer['call']>[2]['connection']
    readonly agentPath: string
  }
  /** Whether a rule has every call asked. */
  readonly asksAll: boolean
}

export function createServerTool({ server, name, definition, caller, asksAll }: ServerToolParts): Tool {
  const { info, schema } = definition
  const readOnly = server.config.trustHints === true && info.readOnlyHint
  return defineTool({
    name,
    description: `[Tool ${JSON.stringify(info.name)} of the MCP server ${server.name}, in its words] ${info.description}`,
    // By the definition that holds when it is called; it may have changed since the run began.
    inputSchema: z.record(z.string(), z.json()).superRefine((input, context) => {
      const checked = server.definition(info.name)?.schema?.check(input)
      if (checked?.ok === false) context.addIssue({ code: 'custom', message: checked.error })
    }),
    outputSchema: ServerText,
    // What such a server does is done outside of the VM.
    requiresApproval: asksAll || (!server.isProgram && !readOnly),
    readOnly,
    runs: 'server',
    // A schema that cannot be checked is no promise either.
    parameters: schema === null ? { type: 'object' } : withoutDialect(info.inputSchema),
    execute: (input, { signal, askUser }) => server.call(info.name, input, { ...caller, signal, askUser }),
    render: ({ text }) => quoteServer(text),
  })
}

/** Providers take a schema of an object, and not the word for which kind of schema it is. */
function withoutDialect({
  $schema: _,
  ...schema
}: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  return { ...schema, type: 'object' }
}
