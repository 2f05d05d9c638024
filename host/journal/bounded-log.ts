/** A log file with a size limit: later lines are counted, and the count is the last line. */
import type { FileHandle } from 'node:fs/promises'
import { openRegular } from '../files/regular-file.ts'

export class BoundedLog {
  readonly #file: FileHandle
  readonly #maxBytes: number
  #bytes = 0
  #dropped = 0
  #tail: Promise<unknown> = Promise.resolve()

  private constructor(file: FileHandle, maxBytes: number) {
    this.#file = file
    this.#maxBytes = maxBytes
  }

  static async open(path: string, maxBytes: number): Promise<BoundedLog> {
    return new BoundedLog(await openRegular(path, 'append'), maxBytes)
  }

  /** Appends one line; a disk error loses log lines, not the run. */
  write(value: unknown): void {
    const line = `${JSON.stringify(value)}\n`
    if (this.#bytes + Buffer.byteLength(line) > this.#maxBytes) {
      this.#dropped += 1
      return
    }
    this.#bytes += Buffer.byteLength(line)
    this.#append(line)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#dropped > 0)
      this.#append(
        `${JSON.stringify({ level: 'warn', message: 'log lines dropped at the bound', count: this.#dropped })}\n`,
      )
    await this.#tail
    await this.#file.close()
  }

  #append(line: string): void {
    this.#tail = this.#tail.then(() => this.#file.appendFile(line)).catch(() => undefined)
  }
}
