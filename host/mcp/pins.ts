/**
 * Stores what MCP servers offered when they were allowed: a digest of each tool's definition, by configuration source,
 * name and, for workspace servers, directory. Decides nothing.
 */

import * as z from 'zod'
import { CaissonError, requireText } from '#specs/errors.ts'
import { McpOffer } from '#specs/protocol/extension.ts'
import { Line, Milliseconds, RunId, Sha256, Text } from '#specs/protocol/text.ts'
import type { Folders } from '../state/folders.ts'
import { JsonFile } from '../state/json-file.ts'

const pinsMaxCount = 500

const PinnedTool = z.strictObject({ name: Line.min(1), description: Line, sha256: Sha256 })

const McpPin = z.strictObject({
  source: McpOffer.shape.source,
  server: McpOffer.shape.server,
  /** For workspace servers: the real path of the workspace. */
  directory: z.string().min(1).max(4_096).optional(),
  /** Program and arguments, or address. */
  runs: Text,
  tools: z.array(PinnedTool).max(128),
  /** Run in which it was allowed. */
  runId: RunId,
  at: Milliseconds,
})
export type McpPin = Readonly<z.infer<typeof McpPin>>
export type PinKey = Pick<McpPin, 'source' | 'server' | 'directory'>

const PinFile = z.strictObject({ pins: z.array(McpPin).max(pinsMaxCount) })

export class McpPins {
  readonly #file: JsonFile<z.infer<typeof PinFile>>

  constructor(folders: Pick<Folders, 'home' | 'locks'>) {
    this.#file = new JsonFile(folders, 'mcp-pins.json', PinFile, { pins: [] })
  }

  /** Oldest first. @throws {CaissonError} `state_unavailable` */
  async list(): Promise<readonly McpPin[]> {
    return (await this.#file.read()).pins
  }

  /** @throws {CaissonError} `state_unavailable` */
  async find(key: PinKey): Promise<McpPin | undefined> {
    return (await this.list()).find((pin) => isSame(pin, key))
  }

  /** Replaces the entry of that server. @throws {CaissonError} `state_unavailable` */
  async keep(pin: McpPin): Promise<void> {
    await this.#file.change(({ pins }) => {
      const others = pins.filter((one) => !isSame(one, pin))
      if (others.length >= pinsMaxCount)
        throw new CaissonError(
          'limit_reached',
          `${pinsMaxCount} MCP servers are approved already, which is the limit`,
          { remedy: 'revoke some with caisson mcp forget' },
        )
      return { pins: [...others, pin] }
    })
  }

  /**
   * Removes the entries of servers with this name. @returns the removed entries @throws {CaissonError}
   * `state_unavailable`
   */
  async forget(server: string, directory?: string): Promise<readonly McpPin[]> {
    requireText('server', server)
    let gone: readonly McpPin[] = []
    await this.#file.change((content) => {
      const isMeant = (pin: McpPin) =>
        pin.server === server && (directory === undefined || pin.directory === directory)
      gone = content.pins.filter(isMeant)
      return gone.length === 0 ? content : { pins: content.pins.filter((pin) => !isMeant(pin)) }
    })
    return gone
  }
}

function isSame(a: PinKey, b: PinKey): boolean {
  return a.source === b.source && a.server === b.server && a.directory === b.directory
}
