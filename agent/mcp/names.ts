/**
 * Names of servers' tools as the model sees them: `server_tool`, in what every provider takes for a name, never one that is
 * taken. The same server and tool have the same name in each run with the same other names.
 */
import { withDigest } from '#runtime/providers/names.ts'

const maxChars = 64

export class ServerToolNames {
  readonly #taken: Set<string>

  /** @param taken names of other tools; in whatever case and with `-` or `_`, for models mix these up */
  constructor(taken: Iterable<string>) {
    this.#taken = new Set([...taken].map(fold))
  }

  claim(server: string, tool: string): string {
    const plain = `${server}_${tool}`.replaceAll(/[^A-Za-z0-9_]/g, '_').replace(/^(?=\d)/, '_')
    const fits = plain.length <= maxChars && !this.#taken.has(fold(plain))
    const name = fits ? plain : withDigest(plain, `${server}\n${tool}`)
    this.#taken.add(fold(name))
    return name
  }
}

function fold(name: string): string {
  return name.replaceAll('-', '_').toLowerCase()
}
