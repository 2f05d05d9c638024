/**
 * A model request through the VM: client in the guest, HTTP/2 over virtio-serial, gateway, loopback server; compared
 * with the same client on the host without the gateway.
 */

import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { createInterface } from 'node:readline'
import type { Duplex } from 'node:stream'
import { createGateway, type Gateway } from '../../host/gateway/gateway.ts'
import { serveHttp2 } from '../../host/guest/http-server.ts'
import { startVm } from '../../host/vm/vm.ts'
import { delta, done, reply } from '../../specs/testing/model-replies.ts'
import { type ServerReply, startModelServer } from '../../specs/testing/model-server.ts'
import { type ModelProbeRequest, probeModel } from '../../test/vm/agents/model-probe.ts'
import { imageWithAgent } from '../../test/vm/own-agent.ts'
import { type Figures, openBench } from './bench.ts'
import { figureOf, repeats, reportProgress } from './figures.ts'

const MIB = 1024 * 1024
type Ask = (request: ModelProbeRequest) => Promise<number[]>

const rounds = repeats(10)
/** Warm-up: code is compiled before measuring. */
const warmUpRounds = repeats(3)
/** Requests of a round. */
const counts: Readonly<Record<ModelProbeRequest['op'], number>> = { turn: 10, bytes: 1 }
const longBytes = 4 * MIB

export async function measureGateway(): Promise<Figures> {
  const home = await mkdtemp(path.join(tmpdir(), 'caisson-bench-'))
  try {
    const { folders } = await openBench(home, 1)
    using probe = await imageWithAgent('model-probe.ts')
    await using vm = await startVm({ image: probe.image, folders })
    await using server = await startModelServer(
      ({ messages }) => answers[messages[0]?.content ?? ''] ?? short,
    )
    await using gateway = openGateway(server.baseUrl)
    serveHttp2(
      vm.http,
      (stream, headers) => gateway.handleStream(stream, headers),
      () => undefined,
    )
    const ask = await openProbe(vm.rpc)
    return await compare(ask, (request) => probeModel(request, { baseUrl: server.baseUrl }))
  } finally {
    await rm(home, { recursive: true, force: true })
  }
}

async function compare(through: Ask, direct: Ask): Promise<Figures> {
  const turns = await alternate('turn', through, direct)
  const bytes = await alternate('bytes', through, direct)
  const speed = (times: readonly number[]) =>
    figureOf(times.map((ms) => long.body.length / MIB / (ms / 1_000)))
  return {
    gatewayTurnMs: figureOf(turns.through),
    directTurnMs: figureOf(turns.direct),
    gatewayAddedMs: figureOf(turns.through.map((ms, index) => ms - (turns.direct[index] ?? Number.NaN))),
    gatewayMiBps: speed(bytes.through),
    directMiBps: speed(bytes.direct),
  }
}

/** Alternating, so that a noisy minute affects both. */
async function alternate(op: ModelProbeRequest['op'], through: Ask, direct: Ask) {
  const request = { op, count: counts[op] }
  const times = { through: [] as number[], direct: [] as number[] }
  for (let round = -warmUpRounds; round < rounds; round++) {
    if (round === 0) reportProgress(`${op} through the gateway`)
    const one = await through(request)
    const other = await direct(request)
    if (round < 0) continue
    times.through.push(...one)
    times.direct.push(...other)
  }
  return times
}

function openGateway(baseUrl: string): Gateway {
  return createGateway({
    provider: { name: 'custom', model: 'm', baseUrl, key: null, notes: [] },
    runId: 'run-00000000000000000000',
    limits: { maxTokens: Number.MAX_SAFE_INTEGER },
    onModelEvent: () => undefined,
    onDenied: () => undefined,
    logger: { info: () => undefined, warn: () => undefined },
  })
}

/** The probe in the guest, once it has reported ready. */
async function openProbe(port: Duplex): Promise<Ask> {
  const lines = createInterface({ input: port })
  const next = async (): Promise<unknown> => {
    const [line] = (await once(lines, 'line')) as [string]
    return (JSON.parse(line) as { value: unknown }).value
  }
  await next()
  return async (request) => {
    const answer = next()
    port.write(`${JSON.stringify({ id: 1, ...request })}\n`)
    const value = await answer
    if (!Array.isArray(value)) throw new Error(`the probe failed: ${String(value)}`)
    return value as number[]
  }
}

const short = reply({
  text: 'a short answer',
  calls: [{ id: 'a', name: 'read_file', arguments: { path: 'a.txt' } }],
})
const line = delta({ content: 'a line of text that is about as long as lines are\n'.repeat(20) })
const long = { body: `${line.repeat(Math.ceil(longBytes / line.length))}${delta({}, 'stop')}${done}` }
const answers: Readonly<Record<string, ServerReply>> = { turn: short, bytes: long }
