/**
 * What the benchmarks of a fleet share: a real PostgreSQL that flushes what it commits, a database of its own for each
 * measurement, and hosts that are processes.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { EventEmitter, once } from 'node:events'
import { loadavg } from 'node:os'
import path from 'node:path'
import { type FleetAddress, parseFleetAddress } from '../../host/fleet/address.ts'
import { FleetDatabase } from '../../host/fleet/database.ts'
import { Fleet } from '../../host/fleet/fleet.ts'
import { PostgresServer } from '../../test/support/postgres.ts'
import type { HostReport, RunKind } from './fleet-host.ts'

/** As a server of a fleet is set: nothing that is committed is lost, and tables are vacuumed. */
const settings = [
  ...['fsync=on', 'full_page_writes=on', 'autovacuum=on', 'max_connections=300', 'shared_buffers=256MB'],
  ...['max_wal_size=4GB', 'checkpoint_timeout=15min', 'maintenance_work_mem=256MB', 'work_mem=16MB'],
]

export async function startServer(): Promise<PostgresServer> {
  return await PostgresServer.start({ settings })
}

let databases = 0

/** An empty database of the server. */
export async function newDatabase(server: PostgresServer): Promise<FleetAddress> {
  databases += 1
  const name = `bench_${databases}`
  const admin = await FleetDatabase.open(parseFleetAddress(server.address, 'the benchmark'), {
    migrations: [],
  })
  await admin.query(`CREATE DATABASE ${name}`)
  await admin[Symbol.asyncDispose]()
  return parseFleetAddress(server.addressWith({}, name), 'the benchmark')
}

/** A host that submits and looks, and carries nothing out. */
export async function openObserver(address: FleetAddress): Promise<Fleet> {
  const warn = (text: string) => void process.stderr.write(`${text}\n`)
  return await Fleet.open(address, { name: 'observer', version: 'bench', slots: 0, warn })
}

/** Hosts that are processes with a part of the fleet's code, and what they report. */
export class HostProcesses implements AsyncDisposable {
  readonly #address: FleetAddress
  readonly #hosts = new Map<string, ChildProcess>()
  readonly #reports = new Map<string, HostReport[]>()
  readonly #reported = new EventEmitter()
  readonly #slots: number
  #started = 0

  constructor(address: FleetAddress, slots: number) {
    this.#address = address
    this.#slots = slots
  }

  /** @param count of hosts that are there afterwards @param kind of runs that they carry out from now on */
  async set(count: number, kind: RunKind): Promise<void> {
    const missing = Array.from({ length: Math.max(0, count - this.#hosts.size) }, () => this.#start())
    await Promise.all(missing)
    for (const host of this.#hosts.values()) host.send(kind)
  }

  /** The next line of the run that nobody asked for yet. */
  async report(runId: string): Promise<HostReport> {
    for (;;) {
      const report = this.#reports.get(runId)?.shift()
      if (report !== undefined) return report
      await once(this.#reported, runId)
    }
  }

  /** As a power failure does. */
  kill(name: string): void {
    this.#hosts.get(name)?.kill('SIGKILL')
    this.#hosts.delete(name)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ended = [...this.#hosts.values()].map((host) => once(host, 'exit'))
    for (const host of this.#hosts.values()) host.kill('SIGKILL')
    await Promise.all(ended)
  }

  async #start(): Promise<void> {
    const name = `host${this.#started++}`
    const program = path.join(import.meta.dirname, 'fleet-host.ts')
    const host = fork(program, [name, `${this.#slots}`], {
      execArgv: ['--conditions=caisson-source'],
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    })
    this.#hosts.set(name, host)
    host.send(this.#address)
    await once(host, 'message')
    host.on('message', (report: HostReport) => {
      const reports = this.#reports.get(report.runId) ?? []
      this.#reports.set(report.runId, reports)
      reports.push(report)
      this.#reported.emit(report.runId)
    })
  }
}

/** Of the last minute, beside absolute values. */
export function machineLoad(): number {
  return Number((loadavg()[0] ?? 0).toFixed(2))
}
