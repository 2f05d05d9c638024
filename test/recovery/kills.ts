/** Runs of the scenario in which something is killed: the agent or the VM of this process, or another host process. */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { readdir, readFile, stat, truncate } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import type { HostOrder } from './host-program.ts'
import { type Cut, type CutLine, watchLines } from './journal-cuts.ts'
import type { InstalledMachine } from './machine/install.ts'
import { accompany, resumeRun, type Scene, startRun } from './scenario.ts'
import { hasEnded, type Outcome, World, wholeLines } from './world.ts'

/** `power`: the host process, and what it had not synced. */
export type Victim = 'agent' | 'VM' | 'host' | 'power'
export const victims = ['agent', 'VM', 'host', 'power'] as const

/** At a line of the journal, or at a moment. The run's last line counts for every later one. */
export type Kill = { readonly victim: Victim } & (
  | { readonly seq: number; readonly cut: Cut }
  | { readonly afterMs: number }
)

const retryMs = 10
const PROGRAM = fileURLToPath(new URL('./host-program.ts', import.meta.url))

/** What many worlds share: the machine, and a host process that waits for its order. */
export class Worlds implements AsyncDisposable {
  readonly #machine: InstalledMachine
  readonly #folder: string
  readonly #scene: Pick<Scene, 'sleepAfterMs' | 'isWorkflow'>
  readonly #handlers = new Map<string, (line: CutLine, cut: Cut) => void>()
  #watch: Disposable | undefined
  #spare: ChildProcess | undefined
  #count = 0

  private constructor(
    machine: InstalledMachine,
    folder: string,
    scene: Pick<Scene, 'sleepAfterMs' | 'isWorkflow'>,
  ) {
    this.#machine = machine
    this.#folder = folder
    this.#scene = scene
  }

  /** @param scene of each world */
  static async open(
    machine: InstalledMachine,
    folder: string,
    scene: Pick<Scene, 'sleepAfterMs' | 'isWorkflow'> = {},
  ): Promise<Worlds> {
    const worlds = new Worlds(machine, folder, scene)
    worlds.#watch = await watchLines((line, cut) => worlds.#handlers.get(line.runId)?.(line, cut))
    process.env.PATH = `${machine.programs}:${process.env.PATH}`
    return worlds
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#watch?.[Symbol.dispose]()
    this.#spare?.kill('SIGKILL')
  }

  /** Calls `onLine` with the lines of a run of this process, until its next call. */
  watch(runId: string, onLine: (line: CutLine, cut: Cut) => void): void {
    this.#handlers.set(runId, onLine)
  }

  async openWorld(): Promise<World> {
    this.#count += 1
    return await World.open(this.#machine, path.join(this.#folder, `world-${this.#count}`), this.#scene)
  }

  async run(kill?: Kill): Promise<Outcome> {
    await using world = await this.openWorld()
    if (kill?.victim !== 'host' && kill?.victim !== 'power') return await this.#killGuest(world, kill)
    const { runId, killedAfter } = await this.killHost(world, kill)
    if (killedAfter === undefined)
      return await world.outcome({ runId, killedAfter, end: 'the run had ended' })
    // Its process died behind the run's last line: there is nothing to continue.
    if (hasEnded(killedAfter)) return await world.outcome({ runId, killedAfter, end: 'completed' })
    const run = await resumeRun(world.host, runId, world.scene)
    await accompany(world.host, run, world.scene)
    const { outcome, message } = await run.result()
    return await world.outcome({ runId, killedAfter, end: `${outcome}: ${message}` })
  }

  /** In this process: who dies is the agent, or the VM with it. */
  async #killGuest(world: World, kill: Kill | undefined): Promise<Outcome> {
    const { host, scene } = world
    let killedAfter: string[] | undefined
    const run = await startRun(host, scene)
    const strike = (): void => {
      const pids = world.findMachine()
      const pid = kill?.victim === 'agent' ? pids?.agent : pids?.machine
      if (killedAfter !== undefined || pid === undefined) return
      process.kill(pid, 'SIGKILL')
      killedAfter = wholeLines(world.journalOf(run.id))
    }
    /** Where there is no VM yet, or none while the run sleeps, the victim dies as soon as there is one. */
    const strikeSoon = (): void => {
      strike()
      if (killedAfter === undefined && run.state.end === null) setTimeout(strikeSoon, retryMs)
    }
    if (kill !== undefined && 'seq' in kill)
      this.#handlers.set(run.id, ({ seq, type }, cut) => {
        const isLast = type === 'changes-ready' && seq < kill.seq
        const isNow = cut === (kill.cut === 'after' ? 'after' : 'before')
        if (isNow && (seq === kill.seq || isLast)) strikeSoon()
      })
    const timer = kill !== undefined && 'afterMs' in kill ? setTimeout(strikeSoon, kill.afterMs) : undefined
    await accompany(host, run, scene)
    const { outcome, message } = await run.result()
    clearTimeout(timer)
    this.#handlers.delete(run.id)
    return await world.outcome({ runId: run.id, killedAfter, end: `${outcome}: ${message}` })
  }

  /** Has another process start the run, and die. `killedAfter` is undefined where the run had ended before. */
  async killHost(
    { scene, env, home }: World,
    kill: Kill,
  ): Promise<{ runId: string; killedAfter: string[] | undefined }> {
    const child = this.takeHost()
    const ended = once(child, 'exit')
    child.send({ scene, env, ...('seq' in kill ? { dieAt: kill } : {}) } satisfies HostOrder)
    if ('afterMs' in kill)
      child.once('message', () => setTimeout(() => child.kill('SIGKILL'), kill.afterMs).unref())
    const [, signal] = await ended
    const runs = path.join(home, 'runs')
    const [runId = ''] = (await readdir(runs)).filter((name) => name.startsWith('run-'))
    const journal = path.join(runs, runId, 'journal.jsonl')
    if (signal !== 'SIGKILL') return { runId, killedAfter: undefined }
    if (kill.victim === 'power') await losePower(journal)
    return { runId, killedAfter: wholeLines(journal) }
  }

  /** A process that waits for an order. */
  takeHost(): ChildProcess {
    const taken = this.#spare ?? this.#startHost()
    this.#spare = this.#startHost()
    return taken
  }

  #startHost(): ChildProcess {
    return fork(PROGRAM, {
      execArgv: ['--conditions=caisson-source'],
      env: { ...process.env, NODE_COMPILE_CACHE: path.join(this.#folder, 'compiled') },
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    })
  }
}

/** What the host had not synced is lost, but for some of its bytes: a number that follows from the length. */
async function losePower(journal: string): Promise<void> {
  const summary = path.join(path.dirname(journal), 'summary.json')
  const text = await readFile(summary, 'utf8').catch(() => '{"bytes":0}')
  const { bytes: synced } = JSON.parse(text) as { bytes: number }
  const { size } = await stat(journal)
  await truncate(journal, synced + Math.floor(((size - synced) * (size % 3)) / 2))
}
