/** A program in a VM that a copy reads from or writes to. Its output is untrusted. Ends with the copy, or when nothing comes. */
import { CaissonError, errorMessage } from '#specs/errors.ts'
import type { ShellOptions } from '#specs/protocol/methods.ts'
import { type CopyOptions, copyDefaults } from './copy.ts'
import type { Shell } from './shell.ts'

/** What is read of a VM. */
export interface ShellOpener {
  openShell(options: ShellOptions): Promise<Shell>
}

/** Of output after the end of an archive. */
const restMaxBytes = 1024 * 1024
const problemMaxChars = 2_000
/** After its output, until the program has ended. */
const endMs = 10_000

export class GuestProgram implements AsyncDisposable {
  readonly #shell: Shell
  readonly #options: CopyOptions
  readonly #onAbort = (): void => this.#shell.kill()
  /** Its standard output; throws a {@link CaissonError} when it is cancelled, and when nothing comes for too long. */
  readonly output: AsyncIterableIterator<Buffer> = this.#read()
  #problem = ''

  private constructor(shell: Shell, options: CopyOptions) {
    this.#shell = shell
    this.#options = options
    options.signal?.addEventListener('abort', this.#onAbort, { once: true })
    void this.#readProblem()
  }

  /** @throws {CaissonError} `cancelled`, `connection_lost` */
  static async start(vm: ShellOpener, argv: readonly string[], options: CopyOptions): Promise<GuestProgram> {
    requireGoing(options)
    return new GuestProgram(await vm.openShell({ argv: [...argv], terminal: null }), options)
  }

  async *#read(): AsyncGenerator<Buffer> {
    const { silenceMs = copyDefaults.silenceMs } = this.#options
    const pieces = this.#shell.stdout.iterator({ destroyOnReturn: false }) as AsyncIterator<Buffer>
    for (;;) {
      const { done, value } = await this.#within(silenceMs, pieces.next())
      requireGoing(this.#options)
      if (done === true) return
      yield value
    }
  }

  /** Gives it its input; returns early where it has ended. @throws what `pieces` throws, and {CaissonError} */
  async write(pieces: AsyncIterable<Uint8Array>): Promise<void> {
    const { silenceMs = copyDefaults.silenceMs } = this.#options
    const { stdin, ended } = this.#shell
    let hasEnded = false
    const end = ended.then(() => {
      hasEnded = true
    })
    for await (const piece of pieces) {
      if (hasEnded) return
      if (!(piece instanceof Uint8Array))
        throw new CaissonError('invalid_options', `the archive: expected Uint8Array, got ${typeof piece}`)
      const written = new Promise<void>((resolve) => stdin.write(piece, () => resolve()))
      await this.#within(silenceMs, Promise.race([written, end]))
      requireGoing(this.#options)
    }
    stdin.end()
  }

  /** @param isMissing whether nothing came, so that the file may not be there. @throws {CaissonError} */
  async requireSuccess(isMissing = false): Promise<void> {
    // An archive is padded, and output that nobody reads keeps the program from ending.
    for (let rest = 0; rest <= restMaxBytes; ) {
      const { done, value } = await this.output.next()
      if (done === true) break
      rest += (value as Buffer).length
    }
    const end = await this.#within(endMs, this.#shell.ended)
    requireGoing(this.#options)
    if (end.kind === 'exited' && end.exitCode === 0) return
    if (end.kind === 'lost') throw new CaissonError('agent_lost', `the copy was cut off: ${end.message}`)
    const how = end.kind === 'exited' ? `exit code ${end.exitCode}` : `ended by ${end.signal}`
    const words = this.#problem.replaceAll(/[^\x20-\x7e]+/g, ' ').trim() || how
    if (isMissing && words.includes('No such file or directory'))
      throw new CaissonError('file_not_found', `the VM has no such file: ${words}`)
    const code = words.includes('No space left') ? 'no_space' : 'not_possible_now'
    throw new CaissonError(code, `the VM did not copy everything: ${words}`)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#options.signal?.removeEventListener('abort', this.#onAbort)
    this.#shell.stdout.destroy()
    this.#shell.kill()
    await this.#shell.ended
  }

  async #readProblem(): Promise<void> {
    for await (const piece of this.#shell.stderr)
      this.#problem = (this.#problem + String(piece)).slice(0, problemMaxChars)
  }

  async #within<T>(ms: number, work: Promise<T>): Promise<T> {
    const late = Promise.withResolvers<never>()
    const timer = setTimeout(() => {
      const message = `the VM did nothing for ${ms / 1000} s, so the copy was ended`
      late.reject(new CaissonError('not_possible_now', message, { remedy: 'check whether the VM is paused' }))
    }, ms)
    try {
      return await Promise.race([work, late.promise])
    } finally {
      clearTimeout(timer)
    }
  }
}

/** @throws {CaissonError} `cancelled` */
export function requireGoing({ signal }: CopyOptions): void {
  if (signal?.aborted !== true) return
  throw new CaissonError('cancelled', `cancelled by the caller: ${errorMessage(signal.reason)}`)
}
