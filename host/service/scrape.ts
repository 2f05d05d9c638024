/**
 * What one scrape gives: the counters of the service, and what the library knows now of runs, VMs and this machine. Each
 * source is read once for all who ask within two seconds, and is left out where it does not answer in time.
 */
import { runStatuses, vmSlots, vmStates } from '#specs/service/metrics.ts'
import type { FleetMember, Host, VmDetails, VmEntry } from '../index.ts'
import { Latest, type Reading } from './latest.ts'
import type { MetricValues, Sample } from './metric-values.ts'
import type { Readiness } from './readiness.ts'
import type { RunMetrics } from './run-metrics.ts'

const keepMs = 2_000
/** A scrape of Prometheus may take ten seconds by default. */
const waitMs = 4_000

export interface ScrapeOptions {
  readonly host: Pick<Host, 'runs' | 'vms' | 'queue'>
  readonly values: MetricValues
  readonly runs: RunMetrics
  /** Absent: the service is in no fleet. */
  readonly fleet?: Pick<FleetMember, 'hosts' | 'signals'> | undefined
  readonly readiness: Readiness
  readonly version: string
  readonly log: (line: Readonly<Record<string, unknown>>) => void
}

type Source = 'runs' | 'vms' | 'checks' | 'fleet'

export class Scrape {
  readonly #options: ScrapeOptions
  readonly #slots = new VmSlots()
  readonly #runs: Latest<Sample[]>
  readonly #vms: Latest<Sample[]>
  readonly #fleet: Latest<Sample[]> | undefined

  constructor(options: ScrapeOptions) {
    this.#options = options
    this.#runs = new Latest(() => this.#readRuns(), { keepMs, waitMs })
    this.#vms = new Latest(() => this.#readVms(), { keepMs, waitMs })
    const { fleet } = options
    this.#fleet = fleet && new Latest(() => readFleet(fleet), { keepMs, waitMs })
  }

  async text(): Promise<string> {
    const { values, runs, readiness, version } = this.#options
    const [ofRuns, ofVms, ofFleet, failed] = await Promise.all([
      ...([this.#runs.get(), this.#vms.get(), this.#fleet?.get()] as const),
      readiness.failed(),
    ])
    return values.text([
      { name: 'caisson_build_info', labels: { version, node: process.versions.node }, value: 1 },
      ...(failed === null ? [] : [{ name: 'caisson_ready', value: failed.length === 0 ? 1 : 0 } as const]),
      this.#up('runs', ofRuns.ok),
      this.#up('vms', ofVms.ok),
      this.#up('checks', failed !== null),
      ...this.#samplesOf('runs', ofRuns),
      ...this.#samplesOf('vms', ofVms),
      ...(ofFleet === undefined ? [] : [this.#up('fleet', ofFleet.ok), ...this.#samplesOf('fleet', ofFleet)]),
      ...runs.samples(),
      ...this.#ofQueue(),
      ...ofProcess(),
    ])
  }

  #up(source: Source, isUp: boolean): Sample {
    return { name: 'caisson_source_up', labels: { source }, value: isUp ? 1 : 0 }
  }

  #samplesOf(source: Source, reading: Reading<Sample[]>): Sample[] {
    if (reading.ok) return reading.value
    const cause = String(reading.why)
    this.#options.log({ level: 'warn', message: 'metrics are incomplete', source, cause })
    return []
  }

  #ofQueue(): Sample[] {
    const { host, runs } = this.#options
    if (host.queue === null) return []
    const { atWork, waiting } = host.queue.counts
    const oldest = runs.oldestWait
    return [
      { name: 'caisson_queue_waiting', value: waiting },
      {
        name: 'caisson_queue_oldest_wait_seconds',
        value: oldest === undefined ? 0 : Math.max(0, Date.now() - oldest) / 1_000,
      },
      { name: 'caisson_queue_at_work', value: atWork },
      { name: 'caisson_queue_at_work_limit', value: host.queue.limits.maxAtWork },
    ]
  }

  async #readRuns(): Promise<Sample[]> {
    const runs = await this.#options.host.runs.list()
    const now = Date.now()
    const waits = runs.flatMap(({ pendingApprovals, since }) =>
      pendingApprovals === 0 || since === undefined ? [] : [Math.max(0, now - since)],
    )
    return [
      ...runStatuses.map((status) => ({
        name: 'caisson_runs' as const,
        labels: { status },
        value: runs.filter((run) => run.status === status).length,
      })),
      { name: 'caisson_approvals_waiting', value: sumOf(runs, ({ pendingApprovals }) => pendingApprovals) },
      { name: 'caisson_approval_oldest_wait_seconds', value: Math.max(0, ...waits) / 1_000 },
    ]
  }

  async #readVms(): Promise<Sample[]> {
    const { vms } = this.#options.host
    const [listed, found] = await Promise.all([vms.list(), vms.inspectAll()])
    const used = found.flatMap(({ id, usage }) => (usage === null ? [] : [{ id, ...usage }]))
    const slots = this.#slots.of(used.map(({ id }) => id))
    return [
      ...countsOf(listed),
      { name: 'caisson_vms_memory_bytes', value: sumOf(used, ({ residentBytes }) => residentBytes) },
      { name: 'caisson_vms_memory_limit_bytes', value: sumOf(found, ({ memoryBytes }) => memoryBytes) },
      { name: 'caisson_vms_disk_bytes', value: sumOf(used, ({ diskBytes }) => diskBytes) },
      ...used.flatMap(({ id, residentBytes }) => {
        const slot = slots.get(id)
        return slot === undefined
          ? []
          : [{ name: 'caisson_vm_memory_bytes' as const, labels: { slot }, value: residentBytes }]
      }),
    ]
  }
}

async function readFleet(fleet: Pick<FleetMember, 'hosts' | 'signals'>): Promise<Sample[]> {
  const [hosts, { waiting, oldestWaitSeconds, slots, unservable }] = await Promise.all([
    fleet.hosts(),
    fleet.signals(),
  ])
  const states = hosts.map(({ isGone, isDraining }) => (isGone ? 'gone' : isDraining ? 'draining' : 'taking'))
  return [
    ...(['taking', 'draining', 'gone'] as const).map((state) => ({
      name: 'caisson_fleet_hosts' as const,
      labels: { state },
      value: states.filter((one) => one === state).length,
    })),
    { name: 'caisson_fleet_waiting', value: waiting },
    { name: 'caisson_fleet_oldest_wait_seconds', value: oldestWaitSeconds },
    { name: 'caisson_fleet_slots', labels: { state: 'free' }, value: slots.free },
    { name: 'caisson_fleet_slots', labels: { state: 'taken' }, value: slots.total - slots.free },
    ...(Object.keys(unservable) as (keyof typeof unservable)[]).map((reason) => ({
      name: 'caisson_fleet_unservable' as const,
      labels: { reason },
      value: unservable[reason],
    })),
  ]
}

/** Numbers for VMs, so that their names, which are ever new, are no labels. */
class VmSlots {
  #slots = new Map<string, string>()

  /** The slots of the VMs that there are now; a VM keeps its slot. */
  of(ids: readonly VmDetails['id'][]): ReadonlyMap<string, string> {
    const kept = ids.flatMap((id) => {
      const slot = this.#slots.get(id)
      return slot === undefined ? [] : [[id, slot] as const]
    })
    const slots = new Map(kept)
    const taken = new Set(slots.values())
    let next = 1
    for (const id of ids) {
      if (slots.has(id)) continue
      while (taken.has(String(next))) next += 1
      if (next > vmSlots) break
      slots.set(id, String(next))
      taken.add(String(next))
    }
    this.#slots = slots
    return slots
  }
}

function countsOf(listed: readonly VmEntry[]): Sample[] {
  return vmStates.map((state) => ({
    name: 'caisson_vms',
    labels: { state },
    value: listed.filter((vm) => vm.state === state).length,
  }))
}

function ofProcess(): Sample[] {
  const { user, system } = process.cpuUsage()
  return [
    { name: 'process_resident_memory_bytes', value: process.memoryUsage.rss() },
    { name: 'process_cpu_seconds_total', value: (user + system) / 1_000_000 },
    { name: 'process_start_time_seconds', value: Math.round(performance.timeOrigin) / 1_000 },
  ]
}

function sumOf<T>(all: readonly T[], amountOf: (one: T) => number): number {
  return all.reduce((sum, one) => sum + amountOf(one), 0)
}
