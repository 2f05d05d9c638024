/**
 * A VM without a task, for a program to work in: commands, files of its workspace, ports. Nothing that it does reaches
 * the host's files. Everything of it ends with `close`, with the VM and with this process.
 */
import { CaissonError, requireObject, withCode } from '#specs/errors.ts'
import type { CopyOptions, CopyResult } from '../control/copy.ts'
import type { VmInfo } from '../control/messages.ts'
import { type Forwarding, VmClient } from '../control/vm-client.ts'
import type { RunChanges } from '../runs/changes.ts'
import { type ExecOptions, type ExecResult, execute } from './guest-command.ts'
import { type FileOptions, GuestFiles, type ReadFileOptions, type SandboxFile } from './guest-files.ts'

/** What is known of the VM. */
export type SandboxVm = Pick<
  VmInfo,
  'id' | 'createdAtMs' | 'memoryBytes' | 'cpus' | 'pid' | 'accelerator' | 'confinement'
>

export interface PortOptions {
  /** The port of the host. Absent or 0: any free one. */
  readonly hostPort?: number
  /** Called with why a connection was closed under its client, such as that nothing listens in the guest. */
  readonly onFailure?: (message: string) => void
}

/** A port of the guest on 127.0.0.1 of the host. */
export interface ForwardedPort extends AsyncDisposable {
  readonly port: number
  /** Closes the port and its connections. */
  close(): Promise<void>
}

/** The VM that a sandbox owns. */
interface SandboxOwner extends AsyncDisposable {
  /** Resolves when another process asks that the VM ends. */
  readonly stopped: Promise<void>
  /** Resolves when the VM has ended, with the reason. */
  readonly exited: Promise<{ readonly reason: string }>
  /** See {@link Sandbox.changes}. */
  collect(): Promise<RunChanges>
}

export class Sandbox implements AsyncDisposable {
  readonly vm: SandboxVm
  readonly #client: VmClient
  readonly #owner: SandboxOwner
  readonly #files: GuestFiles
  readonly #ports = new Set<ForwardedPort>()
  #closed: Promise<void> | undefined
  #lost: string | undefined

  private constructor(client: VmClient, owner: SandboxOwner) {
    const { runId: _, directory: __, state: ___, hostPid: ____, ...vm } = client.info
    this.vm = vm
    this.#client = client
    this.#owner = owner
    this.#files = new GuestFiles(client)
    void owner.exited.then(({ reason }) => {
      if (this.#closed === undefined) this.#lost ??= reason
    })
    const end = async (): Promise<void> => {
      if (this.#closed === undefined) this.#lost ??= 'another process stopped it'
      await this.close()
    }
    void owner.stopped.then(() => end().catch(() => undefined))
  }

  /** @param socket the control socket of the owner's VM, which the sandbox ends. @throws {CaissonError} */
  static async open(socket: string, owner: SandboxOwner): Promise<Sandbox> {
    return new Sandbox(await VmClient.connect(socket), owner)
  }

  /** The id of the VM, as `caisson vm list` shows it. */
  get id(): string {
    return this.vm.id
  }

  /**
   * Runs a command as the user `work`. What it leaves running is ended with it. A command that fails is a result.
   * @param command text for bash, or program and arguments
   * @throws {CaissonError} `invalid_options`, `cancelled`, `limit_reached` (8 at once), `vm_lost`,
   * `agent_lost`, `not_possible_now`
   */
  async exec(command: string | readonly string[], options?: ExecOptions): Promise<ExecResult> {
    return await this.#call(() => execute(this.#client, command, options))
  }

  /**
   * @param path below /mnt/workspace: relative to it, or absolute
   * @throws {CaissonError} `invalid_options` for a path that leads elsewhere, `file_not_found`, `limit_reached`
   */
  async readFile(path: string, options?: ReadFileOptions): Promise<Uint8Array> {
    return await this.#call(() => this.#files.read(path, options))
  }

  /** Replaces the content of a file, or makes it with the directories above. @throws {CaissonError} as {@link readFile} */
  async writeFile(path: string, data: string | Uint8Array, options?: FileOptions): Promise<void> {
    await this.#call(() => this.#files.write(path, data, options))
  }

  /** The entries of a directory, by name. Default: the workspace. @throws {CaissonError} as {@link readFile} */
  async listFiles(path?: string, options?: FileOptions): Promise<SandboxFile[]> {
    return await this.#call(() => this.#files.list(path, options))
  }

  /** Removes a file, a link, or a directory with all below it. @throws {CaissonError} as {@link readFile} */
  async remove(path: string, options?: FileOptions): Promise<void> {
    await this.#call(() => this.#files.remove(path, options))
  }

  /**
   * Copies a file or directory out of the sandbox to `to` on this machine, by the rules of `docker cp`; see
   * {@link VmClient.copyOut}. @throws {CaissonError}
   */
  async copyOut(from: string, to: string, options?: CopyOptions): Promise<CopyResult> {
    return await this.#call(() => this.#client.copyOut(from, to, options))
  }

  /** Copies a file or directory of this machine into the sandbox. @throws {CaissonError} */
  async copyIn(from: string, to: string, options?: CopyOptions): Promise<CopyResult> {
    return await this.#call(() => this.#client.copyIn(from, to, options))
  }

  /**
   * Listens on 127.0.0.1 of the host and carries each connection to 127.0.0.1 of the guest.
   * @throws {CaissonError} `invalid_options`, `not_possible_now` where the port of the host cannot be used
   */
  async forward(guestPort: number, options: PortOptions = {}): Promise<ForwardedPort> {
    return await this.#call(async () => {
      requireObject('the options of the port', options)
      return this.#hold(await this.#client.forward({ ...options, guestPort }))
    })
  }

  /**
   * What differs now from the directory that was copied, to review, apply and undo like the changes of a run. The change
   * set has the id of a run and is kept after the sandbox has ended. The next call replaces it unless something of it is
   * applied. End commands that write first: a file that changes while it is read fails the call.
   * @throws {CaissonError} `not_possible_now` without `workspace` and for a file that changed meanwhile, `no_space`,
   * `protocol_violation`, `vm_lost`
   */
  async changes(): Promise<RunChanges> {
    return await this.#call(() => this.#owner.collect())
  }

  /** Ends all commands and ports, and the VM with all that was done in it. Resolves when its process is gone. */
  async close(): Promise<void> {
    this.#closed ??= this.#close()
    await this.#closed
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  async #close(): Promise<void> {
    await Promise.all([...this.#ports].map((port) => port.close()))
    await this.#owner[Symbol.asyncDispose]()
  }

  async #hold(forwarding: Forwarding): Promise<ForwardedPort> {
    const close = async (): Promise<void> => {
      this.#ports.delete(held)
      await forwarding[Symbol.asyncDispose]()
    }
    const held: ForwardedPort = { port: forwarding.port, close, [Symbol.asyncDispose]: close }
    this.#ports.add(held)
    // Closed while the port was being opened.
    if (this.#closed !== undefined) {
      await close()
      throw this.#endedError()
    }
    return held
  }

  /** Why a call failed is said by what became of the VM, where it has ended. */
  async #call<T>(work: () => Promise<T>): Promise<T> {
    return await withCode(async () => {
      if (this.#closed !== undefined || this.#lost !== undefined) throw this.#endedError()
      try {
        return await work()
      } catch (error) {
        const isCut =
          error instanceof CaissonError && (error.code === 'agent_lost' || error.code === 'connection_lost')
        if (!isCut) throw error
        if (this.#closed !== undefined) throw this.#endedError(error)
        await Promise.race([this.#owner.exited, new Promise((resolve) => setTimeout(resolve, exitNoticeMs))])
        throw this.#lost === undefined ? error : this.#endedError(error)
      }
    })
  }

  #endedError(cause?: CaissonError): CaissonError {
    const options = cause === undefined ? {} : { cause }
    if (this.#lost !== undefined)
      return new CaissonError('vm_lost', `the VM of the sandbox has ended: ${this.#lost}`, options)
    return new CaissonError(
      cause === undefined ? 'not_possible_now' : 'cancelled',
      'the sandbox is closed',
      options,
    )
  }
}

/** A VM that ended cuts its connections before its end is known. */
const exitNoticeMs = 500
