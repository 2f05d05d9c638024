/** What a client says of itself: in the request (revision 2026-07-28), or when it connected (2025-11-25). */
import {
  CLIENT_CAPABILITIES_META_KEY,
  CLIENT_INFO_META_KEY,
  type McpServer,
  type ServerContext,
} from '@modelcontextprotocol/server'
import * as z from 'zod'

export const tasksExtension = 'io.modelcontextprotocol/tasks'
const nameMaxChars = 60

const Capabilities = z.looseObject({
  elicitation: z.looseObject({}).optional(),
  extensions: z.record(z.string(), z.unknown()).optional(),
})
type Capabilities = z.infer<typeof Capabilities>

export function capabilitiesOf(server: McpServer, { mcpReq }: ServerContext): Capabilities {
  const given = envelopeOf(mcpReq)[CLIENT_CAPABILITIES_META_KEY] ?? server.server.getClientCapabilities()
  return Capabilities.safeParse(given).data ?? {}
}

/** Whether it shows forms; one that only opens addresses does not. */
export function showsForms({ elicitation }: Capabilities): boolean {
  return elicitation !== undefined && (elicitation.form !== undefined || elicitation.url === undefined)
}

/** In a request of 2026-07-28; before, tasks were another part of the protocol. */
export function hasTasks({ mcpReq }: ServerContext): boolean {
  const declared = Capabilities.safeParse(envelopeOf(mcpReq)[CLIENT_CAPABILITIES_META_KEY]).data
  return declared?.extensions?.[tasksExtension] !== undefined
}

/** Letters, digits and signs alone, since journals and lists show it. */
export function clientNameOf(server: McpServer, { mcpReq }: ServerContext): string {
  const given = envelopeOf(mcpReq)[CLIENT_INFO_META_KEY] ?? server.server.getClientVersion()
  const name = z.looseObject({ name: z.string() }).safeParse(given).data?.name ?? ''
  return (
    name
      .replaceAll(/[^\w .-]/g, '')
      .trim()
      .slice(0, nameMaxChars) || 'an MCP client'
  )
}

function envelopeOf({ envelope }: ServerContext['mcpReq']): Readonly<Record<string, unknown>> {
  return { ...envelope }
}
