// The whole way of a program's connection without a VM: the guest's proxy on loopback, the link over ports in memory,
// and the host's egress with real sockets behind it.
import { once } from 'node:events'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import { buffer } from 'node:stream/consumers'
import type { EgressRecord, EgressRule } from '#specs/protocol/egress.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import type { HostLink } from '../../agent/link/host-link.ts'
import { Gate, type GateOptions } from '../../agent/proxy/gate.ts'
import { Refusals } from '../../agent/proxy/refusals.ts'
import { createProxyServer } from '../../agent/proxy/server.ts'
import { createConnector } from '../../host/egress/connect.ts'
import { makePolicy } from '../../host/egress/policy.ts'
import { type AccessAnswers, RunEgress } from '../../host/egress/run-egress.ts'
import { createEgressServer, type EgressServerOptions } from '../../host/gateway/serve-egress.ts'
import { directNetwork } from '../../host/net/network.ts'
import { until } from '../../host/test/support/run-values.ts'
import { createWorld } from '../link/support.ts'

export interface EgressPath extends AsyncDisposable {
  /** Of the guest's proxy. */
  readonly port: number
  readonly guest: HostLink
  readonly refusals: Refusals
  readonly denied: string[]
  readonly records: EgressRecord[]
  /** Streams of the guest that are served now. */
  open(): number
  /** Waits for so many records. */
  recorded(count: number): Promise<readonly EgressRecord[]>
}

export interface EgressPathOptions extends EgressServerOptions {
  readonly rules?: readonly EgressRule[]
  readonly gate?: GateOptions
  /** Absent: nobody can be asked. */
  readonly askFor?: AccessAnswers['askFor']
  /** Called before the line of an open connection is written; resolves with whether it is. */
  readonly onStart?: () => Promise<boolean>
}

/** Every name leads to this machine, where the test's servers are; a rule lets it be reached. */
export async function openEgress(options: EgressPathOptions = {}): Promise<EgressPath> {
  const { rules = [], gate, askFor, onStart = async () => true, ...serverOptions } = options
  const policy = makePolicy({
    configuration: [
      ...rules,
      {
        effect: 'allow',
        host: '127.0.0.1',
        schemes: ['https', 'http'],
        ports: rules.flatMap((rule) => rule.ports ?? []),
      },
    ],
    otherwise: askFor === undefined ? 'deny' : 'ask',
  })
  if (!policy.ok) throw new Error(policy.error)
  const denied: string[] = []
  const records: EgressRecord[] = []
  const note = async (event: HostEvent): Promise<boolean> => {
    if (event.type === 'egress-denied') denied.push(`${event.target}: ${event.reason}`)
    if (event.type === 'egress-end') {
      const { type: _, ...record } = event
      records.push(record)
    }
    return event.type === 'egress-start' ? await onStart() : true
  }
  const egress = new RunEgress({
    policy: policy.value,
    access: { ...nobody, ...(askFor === undefined ? {} : { askFor }) },
    connect: createConnector({
      network: directNetwork,
      resolve: async () => ({ ok: true, value: ['127.0.0.1'] }),
    }),
    note,
  })
  const serve = createEgressServer(egress, serverOptions)
  let open = 0
  const world = createWorld({
    onStream: (stream, headers) => {
      const gone = new AbortController()
      stream.once('close', () => gone.abort())
      open += 1
      void serve(stream, headers, gone.signal).finally(() => {
        open -= 1
        // As the gateway does.
        if (!stream.destroyed && !stream.readableEnded) stream.resume()
      })
    },
  })
  const guest = world.startGuest()
  await world.link.ready()
  const refusals = new Refusals()
  const proxy = createProxyServer({
    http: guest.http,
    refusals,
    ...(gate === undefined ? {} : { gate: new Gate(gate) }),
  })
  const port = await listen(proxy)
  return {
    port,
    guest,
    refusals,
    denied,
    records,
    open: () => open,
    async recorded(count) {
      await until(() => records.length >= count, `${count} records`)
      return records
    },
    async [Symbol.asyncDispose]() {
      proxy.close()
      await world[Symbol.asyncDispose]()
    },
  }
}

const nobody: AccessAnswers = {
  granted: () => [],
  used: () => undefined,
  askFor: async () => ({ ok: false, error: 'refused: nobody is there' }),
  decide: async () => ({ decision: 'deny' }),
}

/** A port of 127.0.0.1. */
export async function listen(server: Server): Promise<number> {
  await once(server.listen(0, '127.0.0.1'), 'listening')
  return (server.address() as AddressInfo).port
}

/** A TCP server for one test: its port, and what each connection does. */
export async function startTcp(
  onConnection: (socket: Socket) => void,
): Promise<{ readonly port: number; readonly sockets: Socket[] } & AsyncDisposable> {
  const sockets: Socket[] = []
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.push(socket)
    socket.on('error', () => undefined)
    onConnection(socket)
  })
  return {
    port: await listen(server),
    sockets,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy()
      server.close()
    },
  }
}

/** All that comes back for `text`, sent as it stands. */
export async function exchange(socket: Socket, text: string): Promise<string> {
  socket.write(text)
  return (await buffer(socket)).toString('latin1')
}
