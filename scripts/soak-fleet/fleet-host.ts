/** One host of the soak's fleet: a process of `caisson serve --fleet` with a state folder and a way to PostgreSQL of its own. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createWriteStream } from 'node:fs'
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { ServiceClient } from '../../client/index.ts'
import { findMachine } from '../../test/recovery/world.ts'
import { Network } from './network.ts'

export interface HostPlace {
  readonly folder: string
  readonly name: string
  /** The folder of PostgreSQL's socket. */
  readonly database: string
  /** What all hosts have: variables of the model and the machine. */
  readonly env: Readonly<Record<string, string | undefined>>
  readonly blobs: string
  /** Folders of the machines. */
  readonly machines: string
  readonly hasOwnDisk: boolean
}

const bin = fileURLToPath(new URL('../../host/cli/bin.ts', import.meta.url))
const skew = fileURLToPath(new URL('./skew.ts', import.meta.url))
const diskMiB = 1_024
const startMs = 60_000
const againMs = 1_000
const endMs = 60_000

const hostIdIn = (said: string): string => /, as \S+ \((host-[0-9a-f]+)\)/.exec(said)?.[1] ?? ''

export class FleetHost implements AsyncDisposable {
  readonly name: string
  readonly home: string
  readonly network: Network
  readonly #place: HostPlace
  #process: ChildProcess | undefined
  #client: ServiceClient | undefined
  /** In the fleet; another one after each start. */
  hostId = ''
  /** It stands still, or has ended. */
  isAway = true

  private constructor(place: HostPlace, network: Network) {
    this.#place = place
    this.name = place.name
    this.home = path.join(place.folder, place.name)
    this.network = network
  }

  static async open(place: HostPlace): Promise<FleetHost> {
    const network = await Network.open(path.join(place.folder, `${place.name}-network`), place.database)
    const host = new FleetHost(place, network)
    await mkdir(host.home, { mode: 0o700 })
    if (place.hasOwnDisk)
      execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${diskMiB}m,mode=700`, 'none', host.home])
    return host
  }

  /** @param skewMs by which its clock is wrong */
  async start(skewMs = 0): Promise<void> {
    // As a supervisor does: one that starts while the database is away says so, and ends.
    for (const until = performance.now() + startMs; ; await sleep(againMs)) {
      const failed = await this.#startOnce(skewMs).catch((error: unknown) => error)
      if (failed === undefined) return
      await this.kill()
      if (performance.now() > until) throw failed
    }
  }

  async #startOnce(skewMs: number): Promise<void> {
    const { env, blobs, folder, name } = this.#place
    const address = `postgresql:///postgres?host=${encodeURIComponent(this.network.folder)}&user=owner`
    const options = [
      'serve',
      '--fleet-name',
      name,
      '--port',
      '0',
      '--parallel-runs',
      '2',
      '--fleet',
      address,
      '--fleet-files',
      blobs,
    ]
    const child = spawn(
      process.execPath,
      ['--conditions=caisson-source', `--import=${skew}`, '--', bin, ...options],
      {
        env: {
          ...env,
          CAISSON_HOME: this.home,
          XDG_CONFIG_HOME: this.home,
          CAISSON_SOAK_SKEW_MS: String(skewMs),
        },
        cwd: this.home,
        stdio: ['ignore', 'ignore', 'pipe'],
      },
    )
    this.#process = child
    let said = ''
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      said = (said + text).slice(-20_000)
    })
    child.stderr.pipe(createWriteStream(path.join(folder, `${name}.log`), { flags: 'a' }))
    const url = () => /listens on (http:\S+)/.exec(said)?.[1]
    const isUp = () => url() !== undefined && hostIdIn(said) !== ''
    for (const until = performance.now() + startMs; !isUp(); await sleep(50))
      if (child.exitCode !== null || performance.now() > until)
        throw new Error(`the host ${name} did not start: ${said.slice(-4_000)}`)
    const token = (await readFile(path.join(this.home, 'service/token'), 'utf8')).trim()
    this.#client = new ServiceClient({ baseUrl: url() ?? '', token })
    this.hostId = hostIdIn(said)
    this.isAway = false
  }

  get client(): ServiceClient {
    if (this.#client === undefined) throw new Error(`the host ${this.name} was not started`)
    return this.#client
  }

  async kill(): Promise<void> {
    await this.#end('SIGKILL')
  }

  /** It gives its runs to others first. @returns whether it ended in time by itself */
  async drain(): Promise<boolean> {
    const timer = setTimeout(() => void this.#signal('SIGKILL'), endMs)
    const signal = await this.#end('SIGTERM')
    clearTimeout(timer)
    return signal !== 'SIGKILL'
  }

  freeze(): void {
    this.isAway = true
    this.#signal('SIGSTOP')
  }

  thaw(): void {
    this.#signal('SIGCONT')
    this.isAway = false
  }

  async fillDisk(): Promise<void> {
    const handle = path.join(this.home, 'filler')
    await writeFile(handle, Buffer.alloc(diskMiB * 1024 ** 2)).catch(() => undefined)
  }

  async emptyDisk(): Promise<void> {
    await rm(path.join(this.home, 'filler'), { force: true })
  }

  /** Programs that outlived it. What it left in its folder when it was killed is removed by the next run there. */
  findLeft(): string[] {
    const machine = findMachine(this.#place.machines, this.home)
    return machine === undefined ? [] : [`${this.name}: the machine ${machine.machine} still runs`]
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#process !== undefined) await this.kill()
    await this.network[Symbol.asyncDispose]()
    if (this.#place.hasOwnDisk) execFileSync('umount', ['-l', this.home])
  }

  #signal(signal: NodeJS.Signals): void {
    const child = this.#process
    if (child !== undefined && child.exitCode === null && child.signalCode === null) child.kill(signal)
  }

  async #end(signal: NodeJS.Signals): Promise<NodeJS.Signals | null> {
    const child = this.#process
    this.isAway = true
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return null
    const ended = once(child, 'exit')
    child.kill(signal)
    const [, by] = (await ended) as [number | null, NodeJS.Signals | null]
    return by
  }
}
