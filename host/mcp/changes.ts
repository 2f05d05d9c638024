/** Compares a server's offer with the allowed one, and words the question to the person. Pure. */
import type { McpOffer } from '#specs/protocol/extension.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { McpPin } from './pins.ts'

type OfferedTool = McpOffer['tools'][number]

const commandMaxChars = 1_000

interface OfferChanges {
  readonly added: readonly OfferedTool[]
  readonly changed: readonly { readonly now: OfferedTool; readonly before: string }[]
  readonly gone: readonly string[]
  readonly unchanged: number
  /** Earlier program or address, if it has changed. */
  readonly ranBefore?: string
}

export function compareOffer(offer: McpOffer, pin: McpPin | undefined): OfferChanges {
  const pinned = new Map(pin?.tools.map((tool) => [tool.name, tool]))
  const offered = new Set(offer.tools.map(({ name }) => name))
  const known = offer.tools.flatMap((now) => {
    const before = pinned.get(now.name)
    return before === undefined ? [] : [{ now, before }]
  })
  const changed = known.filter(({ now, before }) => now.sha256 !== before.sha256)
  return {
    added: offer.tools.filter(({ name }) => !pinned.has(name)),
    changed: changed.map(({ now, before }) => ({ now, before: before.description })),
    gone: [...pinned.keys()].filter((name) => !offered.has(name)),
    unchanged: known.length - changed.length,
    ...(pin === undefined || pin.runs === offer.runs ? {} : { ranBefore: pin.runs }),
  }
}

/** Whether the complete offer was allowed before, from a server that runs unchanged. */
export function isAsPinned(pin: McpPin | undefined, { added, changed, ranBefore }: OfferChanges): boolean {
  return pin !== undefined && added.length === 0 && changed.length === 0 && ranBefore === undefined
}

/** Names of the changes, for programs; {@link describeOffer} has the old and new texts. */
export function namesOfChanges({ added, changed, gone, ranBefore }: OfferChanges): object {
  const lists = {
    changed: changed.map(({ now }) => now.name),
    added: added.map(({ name }) => name),
    gone,
  }
  const nonEmpty = Object.entries(lists).filter(([, names]) => names.length > 0)
  return { ...Object.fromEntries(nonEmpty), ...(ranBefore === undefined ? {} : { ranBefore }) }
}

/** The question: the host's wording around the server's texts. */
export function describeOffer(offer: McpOffer, pin: McpPin | undefined, changes: OfferChanges): string {
  const { added, changed, gone, unchanged, ranBefore } = changes
  const whose = offer.source === 'user' ? 'of your configuration' : 'that the workspace names (.mcp.json)'
  const why =
    pin === undefined
      ? 'was not approved before.'
      : 'changed since it was approved. Review it like a new server.'
  const lines = [
    `The MCP server ${offer.server} ${whose} ${why}`,
    `Its tools would be offered to the model with the server's own words, which the model reads.`,
    ...(ranBefore === undefined ? [] : [`It ran: ${shortened(ranBefore)}`]),
    `It runs: ${shortened(offer.runs)}`,
    ...changed.flatMap(({ now, before }) => describeChange(now, before)),
    ...added.map((tool) => `New: ${describeTool(tool)}`),
    ...(gone.length === 0 ? [] : [`Gone: ${gone.map(plain).join(', ')}`]),
    ...(unchanged === 0 ? [] : [`As before: ${unchanged} ${unchanged === 1 ? 'tool' : 'tools'}`]),
    ...(offer.tools.length === 0 ? ['It has no tools, but resources or prompts may be read.'] : []),
  ]
  return bounded(lines)
}

function describeChange(now: OfferedTool, before: string): string[] {
  const name = plain(now.name)
  if (before === now.description)
    return [`Changed: ${name}: what it takes, or its description further on. It begins: ${plain(before)}`]
  return [`Changed: ${name}`, `  before: ${plain(before)}`, `  now: ${plain(now.description)}`]
}

function describeTool({ name, description }: OfferedTool): string {
  return description === '' ? plain(name) : `${plain(name)}: ${plain(description)}`
}

/** Untrusted text on one line, so that it cannot imitate the host's lines. */
function plain(text: string): string {
  return text.replaceAll(/\s+/g, ' ').trim()
}

/** A command, which must leave room for the tools: a workspace chooses how long it is. */
function shortened(command: string): string {
  const text = plain(command)
  if (text.length <= commandMaxChars) return text
  const half = commandMaxChars / 2
  const left = text.length - commandMaxChars
  return `${text.slice(0, half)}… ${left} more characters …${text.slice(-half)}`
}

/** As many lines as a preview shows. */
function bounded(lines: readonly string[]): string {
  const kept: string[] = []
  let left = limits.textMaxChars - 100
  for (const [index, line] of lines.entries()) {
    if (line.length > left) {
      kept.push(`… and ${lines.length - index} more lines; caisson shows only this many`)
      break
    }
    left -= line.length + 1
    kept.push(line)
  }
  return kept.join('\n').toWellFormed()
}
