/**
 * Names server tools for the model: `server_tool`, in the alphabet that every provider accepts, never a taken name.
 * Deterministic for the same set of other names.
 */
import { withDigest } from '#runtime/providers/names.ts'

const maxChars = 64

export class ServerToolNames {
  readonly #taken: Set<string>

  /** @param taken names of other tools; compared without case and with `-` equal to `_`, since models confuse them */
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
