/** `caisson vm stats` and `caisson vm inspect`: what VMs use of this machine, and what the host knows of one. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { VmDetails } from '../../control/messages.ts'
import { cpuPercentBetween } from '../../control/usage.ts'
import { formatBytes, formatTable } from '../../files/format.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { StopOnSignal } from '../interrupts.ts'
import { hostOf, type Io } from '../io.ts'
import { writeJsonLine } from '../render/json-lines.ts'

/** Between two readings, from which the share of the CPU follows. */
const intervalMs = 1_000

export async function vmInspect(io: Io, name: string): Promise<ExitCode> {
  const details = await (await hostOf(io).vms.find(name)).inspect()
  io.stdout.write(`${JSON.stringify(details, null, 2)}\n`)
  return exitCodes.completed
}

interface StatsFlags {
  readonly stream: boolean
  readonly json?: boolean
}

export async function vmStats(io: Io, names: readonly string[], flags: StatsFlags): Promise<ExitCode> {
  using stop = new StopOnSignal('ends the process')
  const { vms } = hostOf(io)
  const read = async (): Promise<Map<string, VmDetails>> => {
    if (names.length === 0) return byId(await vms.inspectAll())
    const clients = await Promise.all(names.map((name) => vms.find(name)))
    return byId(await Promise.all(clients.map((client) => client.inspect().catch(() => null))))
  }
  for (let before = await read(); ; ) {
    await sleep(intervalMs, undefined, { signal: stop.signal }).catch(() => undefined)
    if (stop.signal.aborted) return exitCodes.completed
    const now = await read()
    const readings = [...now.values()].map((details) => readingOf(details, before.get(details.id)))
    if (flags.json === true) for (const reading of readings) await writeJsonLine(io.stdout, reading)
    else
      io.stdout.write(
        `${flags.stream && io.stdout.isTTY === true ? '\u001b[H\u001b[J' : ''}${tableOf(readings)}`,
      )
    if (!flags.stream || io.stdout.destroyed) return exitCodes.completed
    before = now
  }
}

/** One that ends meanwhile is left out. */
function byId(all: readonly (VmDetails | null)[]): Map<string, VmDetails> {
  return new Map(all.flatMap((details) => (details === null ? [] : [[details.id, details] as const])))
}

export interface VmReading {
  readonly id: string
  readonly runId: string | null
  readonly state: VmDetails['state']
  /** 100 is one processor of the host; null without two readings. */
  readonly cpuPercent: number | null
  readonly memoryBytes: number | null
  readonly memoryMaxBytes: number
  readonly diskBytes: number | null
  readonly diskMaxBytes: number
  readonly threads: number | null
}

export function readingOf(now: VmDetails, before: VmDetails | undefined): VmReading {
  const { usage } = now
  const cpuPercent = cpuPercentBetween(before?.usage, usage)
  return {
    id: now.id,
    runId: now.runId,
    state: now.state,
    cpuPercent,
    memoryBytes: usage?.residentBytes ?? null,
    memoryMaxBytes: now.memoryBytes,
    diskBytes: usage?.diskBytes ?? null,
    diskMaxBytes: now.diskMaxBytes,
    threads: usage?.threads ?? null,
  }
}

function tableOf(readings: readonly VmReading[]): string {
  const bytes = (value: number | null): string => (value === null ? '?' : formatBytes(value))
  const rows = readings.map((one) => [
    one.id,
    one.state,
    one.cpuPercent === null ? '?' : `${one.cpuPercent.toFixed(1)}%`,
    `${bytes(one.memoryBytes)} / ${bytes(one.memoryMaxBytes)}`,
    `${bytes(one.diskBytes)} / ${bytes(one.diskMaxBytes)}`,
    one.threads === null ? '?' : String(one.threads),
    one.runId ?? '',
  ])
  return formatTable(['VM', 'STATE', 'CPU', 'MEMORY', 'DISK', 'THREADS', 'RUN'], rows)
}
