/**
 * A place for one run of the scenario, and what came of the run. The model, the server outside and the ledger are of the
 * test, so that no kill reaches them.
 */
import { execFile } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { promisify } from 'node:util'
import type { JournalEvent } from '#specs/protocol/event.ts'
import {
  type Asked,
  type ModelServer,
  type ServerReply,
  startModelServer,
} from '#specs/testing/model-server.ts'
import { Host } from '../../host/host.ts'
import type { InstalledMachine } from './machine/install.ts'
import { answer, givenFiles, type Scene } from './scenario.ts'

export interface Outcome {
  readonly files: Readonly<Record<string, string>>
  /** Orders of the host's tool, as the ledger has them. */
  readonly orders: readonly string[]
  /** Requests that the server outside got. */
  readonly outside: number
  readonly asked: number
  /** Requests that the model's server got. */
  readonly paid: number
  readonly events: readonly JournalEvent[]
  /** Lines that the journal had when the victim died, whole; undefined where nobody was killed. */
  readonly killedAfter: readonly string[] | undefined
  readonly lines: readonly string[]
  /** How the run ended, or why it could not continue. */
  readonly end: string
  /** VMs, files to continue with, and processes that are left. */
  readonly left: readonly string[]
}

/** How far a run came, as far as its journal does not say it. */
interface RunEnd {
  readonly runId: string
  readonly killedAfter: readonly string[] | undefined
  readonly end: string
}

interface Parts {
  readonly machine: InstalledMachine
  readonly place: string
  readonly scene: Scene
  readonly model: ModelServer
  readonly server: Server
  readonly requestsOutside: () => number
}

export class World implements AsyncDisposable {
  readonly scene: Scene
  /** For a host of this world in any process. */
  readonly env: Readonly<Record<string, string>>
  readonly home: string
  readonly host: Host
  readonly #parts: Parts
  /** What the model's server answers instead; undefined: the answers of the scene. */
  refusal: ServerReply | undefined
  /** What it answers otherwise. */
  answers: (asked: Asked) => ServerReply

  private constructor(parts: Parts) {
    this.#parts = parts
    this.scene = parts.scene
    this.answers = (asked) => answer(asked, parts.scene)
    this.home = path.join(parts.place, 'home')
    this.env = {
      CAISSON_HOME: this.home,
      CAISSON_CACHE: parts.machine.cache,
      CAISSON_LLM_URL: parts.model.baseUrl,
      CAISSON_LLM_KEY: 'sk-some-key-of-the-test',
      CAISSON_MODEL: 'scripted',
    }
    this.host = new Host({ env: { ...process.env, ...this.env } })
  }

  static async open(
    machine: InstalledMachine,
    place: string,
    scene: Pick<Scene, 'sleepAfterMs' | 'isWorkflow'> = {},
  ): Promise<World> {
    const [workspace, ledger] = [path.join(place, 'work'), path.join(place, 'ledger')]
    await mkdir(workspace, { recursive: true })
    await writeFile(ledger, '')
    for (const [name, content] of Object.entries(givenFiles))
      await writeFile(path.join(workspace, name), content)
    let outside = 0
    const server = createServer((_request, response) => {
      outside += 1
      response.end('reached outside')
    })
    const whole: Scene = { ...scene, workspace, ledger, outsidePort: await listen(server) }
    const model = await startModelServer((asked) => world.refusal ?? world.answers(asked))
    const world = new World({ machine, place, scene: whole, model, server, requestsOutside: () => outside })
    return world
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const { model, server, place } = this.#parts
    await this.host.close()
    await model[Symbol.asyncDispose]()
    server.close()
    await rm(place, { recursive: true, force: true })
  }

  folderOf(runId: string): string {
    return path.join(this.home, 'runs', runId)
  }

  journalOf(runId: string): string {
    return path.join(this.folderOf(runId), 'journal.jsonl')
  }

  /** Keeps the state folder, the workspace and the ledger as they are, for {@link restoreCopy}. */
  async keepCopy(): Promise<void> {
    await mkdir(this.#copyOf('.'))
    for (const name of parts) await copy(path.join(this.#parts.place, name), this.#copyOf(name))
  }

  async restoreCopy(): Promise<void> {
    for (const name of parts) {
      const own = path.join(this.#parts.place, name)
      await rm(own, { recursive: true })
      await copy(this.#copyOf(name), own)
    }
  }

  #copyOf(name: string): string {
    return path.join(this.#parts.place, 'copy', name)
  }

  /** Applies the changes of the run, and reads what is there. */
  async outcome({ runId, killedAfter, end }: RunEnd): Promise<Outcome> {
    const { workspace, ledger } = this.scene
    const { model, requestsOutside } = this.#parts
    const events = await this.host.runs.read(runId)
    await (await this.host.changes(runId).catch(() => undefined))?.apply('all')
    const said = linesOf(await readFile(ledger, 'utf8'))
    return {
      files: await readFolder(workspace),
      orders: said.filter((line) => line !== 'asked'),
      outside: requestsOutside(),
      asked: said.filter((line) => line === 'asked').length,
      paid: model.asked.length,
      events,
      killedAfter,
      end,
      lines: linesOf(await readFile(this.journalOf(runId), 'utf8')),
      left: await this.#left(runId),
    }
  }

  /** The machine that runs now over the disk of a run of this world. */
  findMachine(): { machine: number; agent: number } | undefined {
    return findMachine(this.#parts.machine.place, this.home)
  }

  async #left(runId: string): Promise<string[]> {
    const vms = await readdir(path.join(this.home, 'vms')).catch(() => [])
    const files = ['run.json', 'scratch', 'workspace.erofs', 'workspace-files.json']
    const machine = this.findMachine()
    return [
      // A folder that was being made has a dot; a later start removes it.
      ...vms.filter((name) => !name.startsWith('.')).map((name) => `VM ${name}`),
      ...files.filter((name) => existsSync(path.join(this.folderOf(runId), name))),
      ...(machine === undefined ? [] : [`process ${machine.machine}`]),
    ]
  }
}

/** @param home the state folder of its host */
export function findMachine(place: string, home: string): { machine: number; agent: number } | undefined {
  for (const name of readdirSync(place).toReversed()) {
    const file = path.join(place, name, 'pids.json')
    if (!existsSync(file)) continue
    const pids = JSON.parse(readFileSync(file, 'utf8')) as {
      machine: number
      agent: number
      scratch: string
    }
    const isMachine = processHas(pids.machine, 'cmdline', name)
    const isAgent = processHas(pids.agent, 'environ', path.join(place, name))
    if (pids.scratch.startsWith(`${home}/`) && isMachine && isAgent) return pids
  }
  return undefined
}

const parts = ['home', 'work', 'ledger']

/** Without the holes of the files: the disk of a workspace has 256 GiB of them. */
async function copy(from: string, to: string): Promise<void> {
  await promisify(execFile)('cp', ['-a', '--sparse=always', from, to])
}

/** Not so once it has ended, also where the number is that of another process meanwhile, which nobody may kill. */
function processHas(pid: number, what: 'cmdline' | 'environ', text: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/${what}`, 'utf8').includes(text)
  } catch {
    return false
  }
}

async function listen(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return (server.address() as AddressInfo).port
}

function linesOf(text: string): string[] {
  return text.split('\n').filter((line) => line !== '')
}

/** Whether the journal of a killed process had its run's end. */
export function hasEnded(killedAfter: readonly string[] = []): boolean {
  return killedAfter.at(-1)?.includes('"type":"run-end"') === true
}

/** The lines of a journal, without a last one that has no end. */
export function wholeLines(file: string): string[] {
  const text = readFileSync(file, 'utf8')
  return linesOf(text.slice(0, text.lastIndexOf('\n') + 1))
}

async function readFolder(folder: string): Promise<Record<string, string>> {
  const found: Record<string, string> = {}
  for (const name of (await readdir(folder)).sort())
    found[name] = await readFile(path.join(folder, name), 'utf8')
  return found
}
