/**
 * Describes a server to the host for approval: its tools by name and digest, with the beginning of their
 * descriptions.
 */
import { createHash } from 'node:crypto'
import type { McpToolInfo } from '#runtime/mcp/lists.ts'
import { oneLine } from '#specs/node/prompt-block.ts'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import type { McpOffer, McpServer } from '#specs/protocol/extension.ts'
import { limits } from '#specs/protocol/limits.ts'
import { describeMcpServer } from '#specs/protocol/mcp-config.ts'
import { truncate } from '../text/truncate.ts'

export type OfferSource = McpOffer['source']

const offeredMaxTools = 128
/** Maximum size of one server's names, descriptions and schemas together: every request contains them. */
const offeredMaxChars = 200_000
const describedMaxChars = 300

/** The offered tools of a server, in order, and how many are omitted for their number or size. */
export function boundTools(tools: readonly McpToolInfo[]): {
  readonly tools: readonly McpToolInfo[]
  readonly leftOut: number
} {
  let chars = 0
  const kept = tools.filter((tool) => {
    const size = JSON.stringify(tool).length
    if (tool.name.length > limits.lineMaxChars || chars + size > offeredMaxChars) return false
    chars += size
    return true
  })
  const offered = kept.slice(0, offeredMaxTools)
  return { tools: offered, leftOut: tools.length - offered.length }
}

/** Digest over everything that the model or the agent relies on. */
export function digestTool({ name, description, inputSchema, readOnlyHint }: McpToolInfo): string {
  const definition = toCanonicalJson({ name, description, inputSchema, readOnlyHint })
  return createHash('sha256').update(definition).digest('hex')
}

export function makeOffer(
  server: string,
  source: OfferSource,
  config: McpServer,
  tools: readonly McpToolInfo[],
): McpOffer {
  return {
    server,
    source,
    runs: describeMcpServer(config),
    tools: tools.map((tool) => ({
      name: tool.name,
      description: truncate(oneLine(tool.description), describedMaxChars),
      sha256: digestTool(tool),
    })),
  }
}
