import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { PostgresServer } from '../../../test/support/postgres.ts'
import type { FleetAddress } from '../../fleet/address.ts'
import { Fleet } from '../../fleet/fleet.ts'
import { readRows } from '../../fleet/journal-rows.ts'
import { newRunId } from '../../journal/run-store.ts'
import { headOf, newDatabase } from './fleet-place.ts'

const steps = 6
let server: PostgresServer

beforeAll(async () => {
  server = await PostgresServer.start()
})

afterAll(async () => {
  await server[Symbol.asyncDispose]()
})

it('effects exactly once: a run of a killed host is continued by another one, and no step is done twice [R.01]', async () => {
  await using world = await World.open(await newDatabase(server))
  const runId = await world.addRun()
  const first = await world.worker('first', 3)
  await expect.poll(() => world.ledger(runId), { timeout: 30_000, interval: 20 }).toContain('3 first')
  const since = performance.now()
  first.kill('SIGKILL')
  await world.worker('second')
  await world.ends(runId)
  expect(performance.now() - since).toBeLessThan(40_000)
  const lines = await world.texts(runId)
  expect(lines).toContain('run-take 2 second')
  expect(lines).not.toContain('3 ends')
  expect(world.ledger(runId)).toEqual(['1 first', '2 first', '3 first', '4 second', '5 second', '6 second'])
})

it('fence: a host that froze starts no effect once another one has its run', async () => {
  await using world = await World.open(await newDatabase(server))
  const runId = await world.addRun()
  const frozen = await world.worker('frozen', 2)
  await expect.poll(() => world.ledger(runId), { timeout: 30_000, interval: 20 }).toContain('2 frozen')
  frozen.kill('SIGSTOP')
  await world.worker('next')
  await world.ends(runId)
  const before = world.ledger(runId)
  frozen.kill('SIGCONT')
  await expect.poll(() => world.refused(), { timeout: 30_000 }).toMatch(/^frozen true /)
  expect(world.ledger(runId)).toEqual(before)
  expect(before.map((line) => line.split(' ')[0])).toEqual(['1', '2', '3', '4', '5', '6'])
  expect(await headOf(world.fleet.runs, runId)).toMatchObject({ hasEnded: true, epoch: 2 })
  // It works on, on other runs.
  const other = await world.addRun()
  await world.ends(other)
})

it('no run is lost when the database is killed while hosts work', async () => {
  const place = await PostgresServer.start()
  try {
    await using world = await World.open(await newDatabase(place))
    const runIds = [await world.addRun(), await world.addRun(), await world.addRun()]
    await world.worker('first')
    await world.worker('second')
    await world.sees(runIds[0] ?? '', (text) => text.startsWith('2 begins'))
    await place.kill()
    await sleep(500)
    await place.restart()
    for (const runId of runIds) await world.ends(runId)
    for (const runId of runIds)
      expect(world.ledger(runId).map((line) => line.split(' ')[0])).toEqual(['1', '2', '3', '4', '5', '6'])
  } finally {
    await place[Symbol.asyncDispose]()
  }
})

/** A fleet whose hosts are processes. */
class World implements AsyncDisposable {
  readonly fleet: Fleet
  readonly #address: FleetAddress
  readonly #folder: string
  readonly #workers: ChildProcess[] = []

  private constructor(fleet: Fleet, address: FleetAddress, folder: string) {
    this.fleet = fleet
    this.#address = address
    this.#folder = folder
  }

  static async open(address: FleetAddress): Promise<World> {
    const options = { name: 'the test', version: '1', slots: 0, warn: () => undefined }
    return new World(await Fleet.open(address, options), address, await temporaryFolder('fleet'))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const worker of this.#workers) worker.kill('SIGKILL')
    await this.fleet[Symbol.asyncDispose]()
  }

  /** @param longStep one that takes five seconds */
  async worker(name: string, longStep = 0): Promise<ChildProcess> {
    const given = [this.#address.connection, name, this.#ledgerFile, `${steps}`, '300', `${longStep}`]
    const worker = fork(path.join(import.meta.dirname, 'worker-program.ts'), given, {
      execArgv: ['--conditions=caisson-source'],
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    })
    this.#workers.push(worker)
    await once(worker, 'message')
    return worker
  }

  async addRun(): Promise<string> {
    const runId = newRunId()
    await this.fleet.add(runId, { priority: 'normal', isContinued: false })
    return runId
  }

  /** The journal, a word for each line. */
  async texts(runId: string): Promise<string[]> {
    const texts: string[] = []
    for await (const { event } of readRows(this.fleet.database, this.fleet.runs, runId)) {
      const { event: said } = event
      if (said.type === 'vm-keep-failed') texts.push(said.message)
      else if (said.type === 'run-take') texts.push(`${said.type} ${said.epoch} ${said.host}`)
    }
    return texts
  }

  async sees(runId: string, isIt: (text: string) => boolean): Promise<void> {
    const find = async () => (await this.texts(runId)).some(isIt)
    await expect.poll(find, { timeout: 30_000, interval: 50 }).toBe(true)
  }

  async ends(runId: string): Promise<void> {
    const hasEnded = async () => (await this.fleet.runs.head(runId))?.hasEnded
    await expect.poll(hasEnded, { timeout: 60_000, interval: 100 }).toBe(true)
  }

  /** Effects of the run, in their order. */
  ledger(runId: string): string[] {
    const lines = readFileSync(this.#ledgerFile, 'utf8').split('\n')
    return lines.filter((line) => line.startsWith(runId)).map((line) => line.slice(runId.length + 1))
  }

  /** What each host wrote whose line was refused. */
  refused(): string {
    try {
      return readFileSync(`${this.#ledgerFile}.refused`, 'utf8')
    } catch {
      return ''
    }
  }

  get #ledgerFile(): string {
    return path.join(this.#folder, 'ledger')
  }
}
