/**
 * Records refused connections, since programs such as curl and git hide the reason. Bounded in number and length; the
 * text is for the model.
 */

const keptMax = 256
/** Maximum number of lines per call. */
const listedMax = 20
const lineMaxChars = 600

export interface RefusalWatch {
  /** Refusals since recording began, one line each, without duplicates; concurrent calls see each other's. */
  list(): string[]
}

export class Refusals {
  #kept: string[] = []
  #dropped = 0

  /**
   * @param target method and address
   * @param reason the host's message
   */
  note(target: string, reason: string): void {
    // The host often names the target itself.
    this.#kept.push(refusalLine(reason.startsWith(target) ? reason : `${target}: ${reason}`))
    if (this.#kept.length <= keptMax) return
    this.#kept.shift()
    this.#dropped += 1
  }

  watch(): RefusalWatch {
    const begin = this.#dropped + this.#kept.length
    return {
      list: () => {
        const since = this.#kept.slice(Math.max(0, begin - this.#dropped))
        const counts = new Map<string, number>()
        for (const line of since) counts.set(line, (counts.get(line) ?? 0) + 1)
        const lines = [...counts].map(([line, count]) => (count === 1 ? line : `${line} (${count} times)`))
        const more = lines.length - listedMax
        return more <= 0 ? lines : [...lines.slice(0, listedMax), `and ${more} more`]
      },
    }
  }
}

export function refusalLine(text: string): string {
  const line = text.replaceAll(/[\s\p{Cc}]+/gu, ' ').trim()
  return line.length <= lineMaxChars ? line : `${line.slice(0, lineMaxChars - 2).toWellFormed()} …`
}
