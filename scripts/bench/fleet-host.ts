/**
 * A host of the benchmark: a process that pulls runs of a fleet. A run is its lines alone: one when a host has it, and one
 * that ends it.
 */
import { once } from 'node:events'
import type { FleetAddress } from '../../host/fleet/address.ts'
import { FleetFence } from '../../host/fleet/fence.ts'
import { Fleet } from '../../host/fleet/fleet.ts'
import type { Hold } from '../../host/fleet/run-table.ts'
import { chainLine } from '../../host/journal/journal-lines.ts'
import { hostExamples } from '../../specs/node/event-examples.ts'
import type { HostEvent } from '../../specs/protocol/event.ts'

/** What a run does after its first line: `end`, `wait` for an answer, or `hold` its host until that is killed. */
export type RunKind = 'end' | 'wait' | 'hold'

export interface HostReport {
  readonly runId: string
  readonly host: string
  /** When the line was stored, see {@link nowMs}. */
  readonly atMs: number
  readonly hasEnded: boolean
}

const firstLine: HostEvent = { type: 'vm-keep-failed', message: 'the benchmark says so' }
const lastLine = { type: 'run-end', ...hostExamples['run-end'][1] } as HostEvent

if (process.argv[1] === import.meta.filename) await main()

/** Of the whole machine, ms; processes compare it. */
export function nowMs(): number {
  return Number(process.hrtime.bigint()) / 1e6
}

async function main(): Promise<void> {
  const [name = '', slots = '1'] = process.argv.slice(2)
  const [address] = (await once(process, 'message')) as [FleetAddress]
  let kind: RunKind = 'end'
  process.on('message', (said: RunKind) => {
    kind = said
  })
  process.once('disconnect', () => process.exit())
  const warn = (text: string) => void process.stderr.write(`${name}: ${text}\n`)
  const fleet = await Fleet.open(address, { name, version: 'bench', slots: Number(slots), warn })
  await fleet.work(async (hold, { lost }) => await carryOut(fleet, name, kind, hold, lost))
  process.send?.('ready')
}

async function carryOut(
  fleet: Fleet,
  host: string,
  kind: RunKind,
  hold: Hold,
  signal: AbortSignal,
): Promise<'ended' | 'waits' | 'again'> {
  const { runId } = hold
  const head = await fleet.runs.head(runId)
  if (head === undefined) throw new Error(`the fleet has no run ${runId}`)
  const fence = new FleetFence(fleet.runs, hold, head)
  const isContinued = head.seq > 0
  const report = (hasEnded: boolean) =>
    process.send?.({ runId, host, atMs: nowMs(), hasEnded } satisfies HostReport)
  await note(fence, runId, firstLine)
  report(false)
  if (!isContinued && kind === 'wait') return 'waits'
  if (!isContinued && kind === 'hold') {
    await once(signal, 'abort')
    return 'again'
  }
  await note(fence, runId, lastLine)
  report(true)
  return 'ended'
}

/** A line that is stored before the next one is written. */
async function note(fence: FleetFence, runId: string, event: HostEvent): Promise<void> {
  const { seq: before, hash: prev } = fence.head
  const seq = before + 1
  const { line, hash } = chainLine({ seq, at: Date.now(), runId, source: 'host', event, prev })
  await fence.append({ seq, prev, hash, body: line }, { event, isBarrier: true })
}
