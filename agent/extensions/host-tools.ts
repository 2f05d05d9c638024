/**
 * Offers the host application's tools to the model; only their names exist here. The host validates arguments, asks
 * for approval and executes the call once; the agent waits.
 */
import * as z from 'zod'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import type { HostTool } from '#specs/protocol/extension.ts'
import { limits } from '#specs/protocol/limits.ts'
import { defineTool, type Tool, toolFailure, toolSuccess } from '../tool-calls/tool.ts'
import type { ExtensionHost, OpenExtension } from './extension.ts'

/** Text that the model reads after each application description. */
const whereItRuns = 'Runs on the host, outside the VM: it sees neither the workspace here nor its paths.'

export const openHostTools: OpenExtension = async ({ task, host }) => {
  const offered = task.hostTools ?? []
  if (offered.length === 0) return null
  const tools = offered.toSorted((a, b) => (a.name < b.name ? -1 : 1)).map((tool) => toTool(tool, host))
  return { toolsFor: () => Promise.resolve(tools), close: () => Promise.resolve() }
}

function toTool({ name, description, parameters, readOnly }: HostTool, host: ExtensionHost): Tool {
  return defineTool({
    name,
    description: `${description}\n\n${whereItRuns}`,
    // The host has the authoritative schema.
    inputSchema: z.record(z.string(), z.unknown()),
    outputSchema: z.string(),
    parameters,
    requiresApproval: false,
    readOnly,
    runs: 'host',
    execute: async (input, { signal, agentPath = 'root', stepId, callId, parentCallId }) => {
      if (stepId === undefined || callId === undefined)
        throw new TypeError('a tool of the host is called for a step')
      const given = toCanonicalJson(input)
      // Escaped a second time in its frame.
      const bytes = Buffer.byteLength(JSON.stringify(given))
      if (given.length > limits.documentMaxChars || bytes > limits.frameMaxBytes / 2)
        return toolFailure(
          'too_large',
          `the arguments are too long for the host (${given.length} characters)`,
        )
      const parent = parentCallId === undefined ? {} : { parentCallId }
      const call = { agentPath, stepId, callId, ...parent, tool: name, arguments: given }
      const result = await host.callTool(call, signal)
      return result.ok ? toolSuccess(result.output) : result
    },
    render: (output) => output,
  })
}
