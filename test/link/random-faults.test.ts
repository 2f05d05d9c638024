// A conversation at a thousand drawn places: cut, held back, bytes lost, doubled and changed, pieces split and merged.
import { isDeepStrictEqual } from 'node:util'
import { expect, it } from 'vitest'
import { perTier } from '#specs/testing/tier.ts'
import type { ConversationFaults, PortName } from './conversation.ts'
import { forEachOf } from './cut.ts'
import { createDraw } from './draw.ts'
import type { Direction, Fault } from './faulty-port.ts'
import { converseShortly } from './short-conversation.ts'

const seed = perTier(7, Math.floor(Date.now() / 86_400_000))
const places = perTier(120, 1_000)
const kinds = ['cut', 'stall', 'double', 'change', 'lose'] as const
/** The port of streams is memory between two processes, and HTTP/2 has no checksum of its own. */
const ofStreams = ['cut', 'stall'] as const

it('a run at any faults of its link has the same events, answers and effects as without [R.02, C.01, C.03]', async () => {
  const undisturbed = await converseShortly()
  const draw = createDraw(seed)
  const drawFaults = (): ConversationFaults & { kind: string } => {
    const port: PortName = draw(4) === 0 ? 'http' : 'rpc'
    const faults = Array.from({ length: 1 + draw(3) }, (): Fault => {
      const direction: Direction = draw(2) === 0 ? 'to-host' : 'to-guest'
      const choice: readonly Fault['kind'][] = port === 'rpc' ? kinds : ofStreams
      return {
        direction,
        at: draw(undisturbed.bytes[port][direction]),
        kind: choice[draw(choice.length)] ?? 'cut',
        length: 1 + draw(400),
        ms: draw(300),
      }
    }).sort((a, b) => a.at - b.at)
    const chunkSizes = [1 + draw(300), 1 + draw(9), 1 + draw(60)]
    const kind = faults.map((fault) => fault.kind).join(' and ')
    return { kind, renewedBy: draw(2) === 0 ? 'host' : 'guest', [port]: { faults, chunkSizes } }
  }
  const plans = Array.from({ length: places }, drawFaults)
  const failures: string[] = []
  const sum = { faults: 0, sessions: 0 }
  const startedAt = performance.now()
  await forEachOf(plans, 32, async ({ kind, ...faults }) => {
    if (failures.length >= 5) return
    try {
      const run = await converseShortly(faults)
      sum.faults += run.faults
      sum.sessions += run.sessions
      if (!isDeepStrictEqual(run.outcome, undisturbed.outcome))
        failures.push(`${kind}: ${JSON.stringify(faults)} ${JSON.stringify(run.outcome)}`)
    } catch (error) {
      failures.push(`${kind}: ${JSON.stringify(faults)} ${String(error)}`)
    }
  })
  const tookMs = Math.round(performance.now() - startedAt)
  console.log(JSON.stringify({ seed, places, ...sum, failed: failures.length, tookMs }))
  expect(failures).toEqual([])
  expect(sum.faults).toBeGreaterThan(places)
})
