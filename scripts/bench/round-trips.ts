/** JSON-RPC ping against a raw echo on the same kind of port. */

import { once } from 'node:events'
import { agentPing } from '#specs/protocol/methods.ts'
import { startVm } from '../../host/vm/vm.ts'
import { type Bench, type Figures, openLink, vmOptions, waitForAgent } from './bench.ts'
import { type Figure, figureOf, repeats, reportProgress, round } from './figures.ts'

/** The guest that echoes every byte of the control port. */
export const echoGuest = {
  guestOptions: { init: '/usr/lib/caisson/echo' },
  readyMarker: 'caisson: echo ready',
} as const

const pings = repeats(2_000)
const warmUps = repeats(1_000)
/** As long as the frame of a ping, so that only the processing differs. */
const message = Buffer.alloc(80, 'x')

export async function measureRoundTrips(bench: Bench): Promise<Figures> {
  const rpc = await measurePing(bench)
  const raw = await measureEcho(bench)
  return { rpcRoundTripMs: rpc, rawRoundTripMs: raw, rpcToRaw: round(rpc.p50 / raw.p50) }
}

/** Sends a message to an echo guest and waits until it is back. */
export async function echoOnce(port: NodeJS.ReadWriteStream): Promise<void> {
  let left = message.length
  port.write(message)
  while (left > 0) {
    const [chunk] = (await once(port, 'data')) as [Buffer]
    left -= chunk.length
  }
}

async function measurePing(bench: Bench): Promise<Figure> {
  reportProgress('JSON-RPC ping')
  await using vm = await startVm(vmOptions(bench))
  await using link = openLink(vm)
  await waitForAgent(link)
  return await timeRoundTrips(async (count) => {
    const answer = await link.request(agentPing, { count })
    if (!answer.ok) throw new Error(answer.error.message)
  })
}

async function measureEcho(bench: Bench): Promise<Figure> {
  reportProgress('raw echo')
  await using vm = await startVm({ ...vmOptions(bench), ...echoGuest })
  return await timeRoundTrips(() => echoOnce(vm.rpc))
}

async function timeRoundTrips(roundTrip: (count: number) => Promise<void>): Promise<Figure> {
  for (let count = 0; count < warmUps; count += 1) await roundTrip(count)
  const samples: number[] = []
  for (let count = 0; count < pings; count += 1) {
    const startedAt = performance.now()
    await roundTrip(count)
    samples.push(performance.now() - startedAt)
  }
  return figureOf(samples)
}
