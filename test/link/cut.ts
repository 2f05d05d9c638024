// Runs a conversation again and again, each time with one cut, and says where it came out differently.
import { isDeepStrictEqual } from 'node:util'
import type { Conversation, ConversationFaults, PortName } from './conversation.ts'
import type { Direction } from './faulty-port.ts'

export interface CutPlace {
  readonly port: PortName
  readonly direction: Direction
  readonly at: number
}

export interface CutReport {
  readonly places: number
  /** Cuts that came about; the run may end before its last byte. */
  readonly cuts: number
  readonly sessions: number
  readonly requests: number
  readonly failures: readonly string[]
  readonly tookMs: number
}

/** Every `stride`th byte of each direction of each port, from `offset` on. */
export function placesOf(
  { bytes }: Conversation,
  strideOf: (port: PortName) => number,
  offset = 0,
): CutPlace[] {
  return (['rpc', 'http'] as const).flatMap((port) =>
    (['to-host', 'to-guest'] as const).flatMap((direction) => {
      const stride = strideOf(port)
      const count = Math.floor((bytes[port][direction] - (offset % stride)) / stride)
      return Array.from({ length: count }, (_, index) => ({
        port,
        direction,
        at: (offset % stride) + index * stride,
      }))
    }),
  )
}

/** Runs `work` on all items, `atOnce` at the same time. */
export async function forEachOf<T>(
  items: readonly T[],
  atOnce: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  let next = 0
  const worker = async (): Promise<void> => {
    for (let item = items[next++]; item !== undefined; item = items[next++]) await work(item)
  }
  await Promise.all(Array.from({ length: atOnce }, worker))
}

/** Each may take its whole time limit. */
const enoughFailures = 10

/** The host begins the session after a cut at an even byte, the guest at an odd one. */
export async function cutEach(
  converse: (faults: ConversationFaults) => Promise<Conversation>,
  undisturbed: Conversation,
  places: readonly CutPlace[],
  atOnce = 16,
): Promise<CutReport> {
  const startedAt = performance.now()
  const failures: string[] = []
  const sum = { cuts: 0, sessions: 0, requests: 0 }
  await forEachOf(places, atOnce, async ({ port, direction, at }) => {
    if (failures.length >= enoughFailures) return
    const renewedBy = at % 2 === 0 ? 'host' : 'guest'
    const where = `${port} ${direction} byte ${at}, renewed by the ${renewedBy}`
    try {
      const run = await converse({ renewedBy, [port]: { faults: [{ direction, at, kind: 'cut' }] } })
      sum.cuts += run.faults
      sum.sessions += run.sessions
      sum.requests += run.requests
      if (!isDeepStrictEqual(run.outcome, undisturbed.outcome))
        failures.push(`${where}: ${JSON.stringify(run.outcome)}`)
    } catch (error) {
      failures.push(`${where}: ${String(error)}`)
    }
  })
  return { places: places.length, ...sum, failures, tookMs: Math.round(performance.now() - startedAt) }
}
