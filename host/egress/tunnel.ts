/**
 * One TLS tunnel between a guest program and a permitted server. Refuses anything but TLS for exactly that name, so
 * that a permitted name cannot carry other protocols or reach other sites on the same machine.
 */
import type { ServerHttp2Stream } from 'node:http2'
import type { Duplex } from 'node:stream'
import { describeTarget, isAddress } from '../net/target.ts'
import { readClientHello } from './client-hello.ts'
import type { Egress, Permit } from './egress.ts'
import { type ConnectionLimits, carryBothWays, readAll, type Stop, Watch } from './pipe.ts'
import { OpenTunnel, refuse } from './refusal.ts'

export interface TunnelLimits extends ConnectionLimits {
  /** Time for the guest to send its ClientHello. */
  readonly helloMs: number
}

/** Serves the tunnel to its end and records it; never rejects. */
export async function serveTunnel(
  stream: ServerHttp2Stream,
  permit: Permit,
  { egress, limits, signal }: { egress: Egress; limits: TunnelLimits; signal: AbortSignal },
): Promise<void> {
  const startedAt = performance.now()
  let outside: Duplex | null = null
  let tunnel: OpenTunnel | null = null
  const onStop = ({ why, text }: Stop): void => {
    outside?.destroy()
    if (why === 'limit' && tunnel !== null) tunnel.refuse(text)
    else stream.destroy(new Error(text))
  }
  using watch = new Watch(limits, onStop)
  const onAbort = (): void => watch.stop({ why: 'over', text: 'the guest ended it, or the run is over' })
  signal.addEventListener('abort', onAbort, { once: true })
  let error: string | null = null
  try {
    const connected = await egress.connect(permit, signal)
    if (connected.ok) {
      outside = connected.value
      outside.on('error', () => undefined)
      const started = await egress.start('tunnel', permit)
      if (!started.ok) {
        refuse(stream, started.error)
        error = started.error.message
      } else if (watch.stopped === null && !stream.destroyed) {
        tunnel = new OpenTunnel(stream)
        error = await serveConnected({ stream, tunnel, outside, permit, watch, helloMs: limits.helloMs })
      }
    } else {
      refuse(stream, connected.error)
      error = connected.error.message
    }
  } finally {
    signal.removeEventListener('abort', onAbort)
    outside?.destroy()
  }
  error = watch.stopped?.text ?? error
  egress.record({
    kind: 'tunnel',
    target: describeTarget(permit.target),
    rule: permit.rule,
    bytesOut: watch.bytesOut,
    bytesIn: watch.bytesIn,
    durationMs: Math.round(performance.now() - startedAt),
    ...(error === null ? {} : { error: error.slice(0, 300) }),
  })
}

interface Connected {
  readonly stream: ServerHttp2Stream
  readonly tunnel: OpenTunnel
  readonly outside: Duplex
  readonly permit: Permit
  readonly watch: Watch
  readonly helloMs: number
}

/** @returns the problem, for the journal */
async function serveConnected(parts: Connected): Promise<string | null> {
  const { stream, tunnel, outside, permit, watch, helloMs } = parts
  const iterator = readAll(stream)[Symbol.asyncIterator]()
  const late = setTimeout(
    () => watch.stop({ why: 'limit', text: `ended: no TLS ClientHello within ${helloMs / 1000} s` }),
    helloMs,
  )
  const hello = await readHello(iterator).finally(() => clearTimeout(late))
  if (watch.stopped !== null) return null
  if (hello === null) {
    outside.destroy()
    stream.end()
    return 'the guest closed it before it said anything'
  }
  const wrong = disagreement(hello.reading, permit.target.host)
  if (wrong !== null) {
    outside.destroy()
    tunnel.refuse(`refused: ${wrong}. A tunnel carries TLS for the name it was opened for, and nothing else.`)
    return `refused: ${wrong}`
  }
  await carryBothWays({ stream, source: resume(hello.bytes, iterator) }, outside, watch)
  return null
}

type Refused = Exclude<ReturnType<typeof readClientHello>, { kind: 'more' }>

/** Null if the guest ended before its hello was complete. */
async function readHello(
  iterator: AsyncIterator<Buffer>,
): Promise<{ reading: Refused; bytes: Buffer } | null> {
  let bytes: Buffer = Buffer.alloc(0)
  for (;;) {
    const next = await iterator.next().catch(() => null)
    if (next === null || next.done === true) return null
    bytes = Buffer.concat([bytes, next.value])
    const reading = readClientHello(bytes)
    if (reading.kind !== 'more') return { reading, bytes }
  }
}

/** Why a hello does not match `host`; null if it matches. */
export function disagreement(reading: Refused, host: string): string | null {
  if (reading.kind === 'refused') return `expected a TLS ClientHello for ${host}, saw ${reading.seen}`
  const { serverName } = reading
  if (serverName === host) return null
  if (serverName !== null) return `the tunnel is to ${host}, its TLS asks for ${printable(serverName)}`
  // An address is not a valid server name (RFC 6066).
  return isAddress(host) ? null : `the tunnel is to ${host}, its TLS names no server`
}

async function* resume(held: Buffer, iterator: AsyncIterator<Buffer>): AsyncIterable<Buffer> {
  yield held
  for (;;) {
    const next = await iterator.next()
    if (next.done === true) return
    yield next.value
  }
}

function printable(text: string): string {
  return text.replaceAll(/[^\x20-\x7e]/g, '?')
}
