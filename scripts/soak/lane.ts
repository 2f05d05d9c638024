/**
 * One run after another in a state folder of the lane's own: a random task, a random fault, and the check of what is
 * left. One lane's host process lives as long as the soak, so that its memory can be measured; the other's is killed.
 */
import { type ChildProcess, execFileSync, fork } from 'node:child_process'
import { mkdirSync, rmSync, statfsSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { InstalledMachine } from '../../test/recovery/machine/install.ts'
import { findMachine } from '../../test/recovery/world.ts'
import { type Cause, findQemus, strike, type Target } from './faults.ts'
import type { Order, Report } from './host-process.ts'
import { findBreaches, findRecoveryMs } from './invariants.ts'
import type { Random } from './random.ts'
import { drawTask } from './tasks.ts'

export interface RunRecord {
  readonly name: string
  readonly cause: Cause
  /** Whether the fault came about: the run may have been quicker. */
  readonly struck: boolean
  readonly tookMs: number
  /** From each loss until the next agent answered. */
  readonly recoveryMs: readonly number[]
  readonly breaches: readonly string[]
}

export interface Measured {
  readonly heapBytes: number
  readonly rssBytes: number
  readonly descriptors: number
}

const PROGRAM = fileURLToPath(new URL('./host-process.ts', import.meta.url))
const RUN_LIMIT_MS = 240_000
/** A cold boot under emulation on a busy machine, before it. */
const FIRST_LIMIT_MS = 900_000
const STATE_MIB = 768

interface LaneOptions {
  readonly name: string
  readonly folder: string
  readonly modelUrl: string
  readonly random: Random
  readonly causes: readonly [Cause, ...Cause[]]
  /** The program of the recovery tests in the place of QEMU, whose agents can be killed. Absent: real VMs. */
  readonly machine?: InstalledMachine
}

export class Lane implements AsyncDisposable {
  readonly name: string
  readonly home: string
  readonly measured: Measured[] = []
  readonly #options: LaneOptions
  readonly #isMounted: boolean
  #host: ChildProcess | undefined
  #count = 0

  constructor(options: LaneOptions) {
    this.#options = options
    this.name = options.name
    this.home = path.join(options.folder, `home-${options.name}`)
    mkdirSync(this.home, { mode: 0o700 })
    mkdirSync(this.#temporary)
    this.#isMounted = options.causes.includes('full disk')
    if (this.#isMounted) this.#mount()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#host !== undefined) {
      const { promise, resolve } = Promise.withResolvers<void>()
      this.#host.once('exit', () => resolve())
      this.#host.send(this.#order({ does: 'end' }))
      await Promise.race([promise, sleep(20_000, undefined, { ref: false })])
      this.#host.kill('SIGKILL')
    }
    if (this.#isMounted) execFileSync('umount', ['-l', this.home])
  }

  /** Where the host process puts what it needs for a moment. */
  get #temporary(): string {
    return path.join(this.#options.folder, `temporary-${this.name}`)
  }

  get #workspace(): string {
    return path.join(this.#options.folder, `work-${this.name}`)
  }

  get #ledger(): string {
    return path.join(this.#options.folder, `ledger-${this.name}`)
  }

  /** @param isFirst it makes image and template, undisturbed */
  async run(isFirst = false): Promise<RunRecord> {
    const { random, causes } = this.#options
    const name = `${this.name}${++this.#count}`
    const task = drawTask(random, name)
    const drawn = isFirst ? 'nothing' : random.of(causes)
    const limitMs = isFirst ? FIRST_LIMIT_MS : RUN_LIMIT_MS
    // A VM is saved, and a run sleeps, only while the run waits.
    const waits = (drawn === 'host of a saved VM' || drawn === 'host of a sleeping run') && task.questions > 0
    const cause = drawn.startsWith('host of') && !waits ? 'host' : drawn
    rmSync(this.#workspace, { recursive: true, force: true })
    mkdirSync(this.#workspace)
    writeFileSync(this.#ledger, '')
    const startedAt = performance.now()
    const watched = this.#send({
      does: 'run',
      task,
      answerAfterMs: waits ? null : random.between(0, 400),
      ...(cause === 'host of a saved VM' ? { hibernateAfterMs: 200 } : {}),
      ...(cause === 'host of a sleeping run' ? { sleepAfterMs: 200 } : {}),
    })
    const runId = await watched.started
    const struck = await strike(cause, {
      random,
      home: this.home,
      events: watched.events,
      ended: watched.ended,
      hostPid: this.#host?.pid ?? 0,
      findVm: () => this.#findVm(),
      cutLink: (bytes) => void this.#host?.send(this.#order({ does: 'cut', bytes })),
      resizeDisk: (isFull) => this.#resize(isFull),
    })
    let end = await Promise.race([watched.ended, sleep(limitMs, 'did not end in time', { ref: false })])
    if (end === 'killed' && runId !== undefined) {
      this.#host = undefined
      const resumed = this.#send({ does: 'resume', runId, answerAfterMs: 0 })
      end = await Promise.race([resumed.ended, sleep(limitMs, 'did not end in time', { ref: false })])
    }
    const tookMs = performance.now() - startedAt
    const place = {
      home: this.home,
      workspace: this.#workspace,
      ledger: this.#ledger,
      temporary: this.#temporary,
    }
    const breaches =
      runId === undefined ? [`it did not start: ${end}`] : await findBreaches(place, runId, task, end)
    const recoveryMs = runId === undefined ? [] : await findRecoveryMs(this.home, runId)
    return { name, cause, struck, tookMs, recoveryMs, breaches }
  }

  /** After a collection of garbage; `undefined` where the process does not answer. */
  async measure(): Promise<void> {
    const host = this.#host
    if (host === undefined) return
    const { promise, resolve } = Promise.withResolvers<Measured | undefined>()
    const hear = (report: Report): void => {
      if (report.says === 'measured') resolve(report)
    }
    host.on('message', hear)
    host.send(this.#order({ does: 'measure' }))
    const measured = await Promise.race([promise, sleep(20_000, undefined)])
    host.off('message', hear)
    if (measured !== undefined) this.measured.push(measured)
  }

  #order(order: Omit<Order, 'workspace' | 'ledger'>): Order {
    const boots = this.#options.machine === undefined ? {} : { boots: true }
    return { ...order, ...boots, workspace: this.#workspace, ledger: this.#ledger }
  }

  #findVm(): ReturnType<Target['findVm']> {
    const { machine } = this.#options
    if (machine === undefined) return { qemu: findQemus(this.home)[0], agent: undefined }
    const found = findMachine(machine.place, this.home)
    return { qemu: found?.machine, agent: found?.agent }
  }

  #send(order: Omit<Order, 'workspace' | 'ledger'>) {
    const host = this.#host ?? this.#startHost()
    this.#host = host
    const started = Promise.withResolvers<string | undefined>()
    const ended = Promise.withResolvers<string>()
    const events: string[] = []
    const hear = (report: Report): void => {
      if (report.says === 'event') events.push(report.type)
      if (report.says === 'started') started.resolve(report.runId)
      if (report.says !== 'ended') return
      started.resolve(undefined)
      ended.resolve(report.end)
    }
    const exit = (): void => {
      started.resolve(undefined)
      ended.resolve('killed')
    }
    host.on('message', hear)
    host.once('exit', exit)
    void ended.promise.then(() => {
      host.off('message', hear)
      host.off('exit', exit)
    })
    host.send(this.#order(order))
    return { started: started.promise, ended: ended.promise, events }
  }

  #startHost(): ChildProcess {
    const { modelUrl, machine } = this.#options
    const own =
      machine === undefined
        ? {}
        : { CAISSON_CACHE: machine.cache, PATH: `${machine.programs}:${process.env.PATH}` }
    return fork(PROGRAM, {
      execArgv: ['--conditions=caisson-source', '--expose-gc'],
      env: {
        ...process.env,
        ...own,
        CAISSON_HOME: this.home,
        CAISSON_LLM_URL: modelUrl,
        CAISSON_LLM_KEY: 'sk-of-the-soak',
        CAISSON_MODEL: 'scripted',
        TMPDIR: this.#temporary,
      },
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    })
  }

  #mount(): void {
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${STATE_MIB}m,mode=700`, 'none', this.home])
  }

  /** Leaves no room on the state folder's disk, or gives it back. */
  #resize(isFull: boolean): void {
    const { blocks, bfree, bsize } = statfsSync(this.home)
    const size = isFull ? `${(blocks - bfree) * bsize + 64 * 1024}` : `${STATE_MIB}m`
    execFileSync('mount', ['-o', `remount,size=${size}`, this.home])
  }
}
