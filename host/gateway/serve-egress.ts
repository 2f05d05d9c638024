/**
 * Serves the guest's traffic besides the model and the gateway's services: tunnels and plain requests of its programs.
 * Normalizes, judges, connects and records each; a refusal names its source and reason immediately.
 */
import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2'
import type { Result } from '#specs/protocol/error.ts'
import type { Egress } from '../egress/egress.ts'
import { defaultConnectionLimits } from '../egress/pipe.ts'
import { onlyTexts, servePlain } from '../egress/plain.ts'
import { refuse } from '../egress/refusal.ts'
import { serveTunnel, type TunnelLimits } from '../egress/tunnel.ts'
import { type Upgrade, upgradeHeader } from '../egress/upgrade.ts'
import { gatewayError, type WireError } from '../net/gateway-error.ts'
import type { Target } from '../net/target.ts'
import { parseAuthority, parseTarget } from '../net/target.ts'
import { gatewayAuthority, type ServeStream } from './gateway.ts'

export interface EgressServerOptions {
  /** Defaults: 1 GiB per direction, one hour, five minutes idle, 30 s to the first TLS bytes. */
  readonly limits?: Partial<TunnelLimits>
  /** Maximum open connections of the run. The port carries 64 streams; the others are for the model. */
  readonly maxOpen?: number
  /**
   * The user's secrets and trusted certificates. Absent: no request is upgraded, and placeholders are sent unchanged.
   */
  readonly upgrade?: Upgrade
}

/** @param egress judges, connects and records, for the run of these streams */
export function createEgressServer(egress: Egress, options: EgressServerOptions = {}): ServeStream {
  const limits: TunnelLimits = { ...defaultConnectionLimits, helloMs: 30_000, ...options.limits }
  const maxOpen = options.maxOpen ?? 48
  let open = 0

  return async (stream, headers, signal) => {
    const target = readTarget(headers, options.upgrade !== undefined)
    if (!target.ok) return refuse(stream, target.error)
    if (open >= maxOpen) {
      const text = `Refused: ${maxOpen} connections of this run are open already. Close some, or make fewer at once.`
      return refuse(stream, gatewayError('limit_concurrency', text))
    }
    open += 1
    try {
      await serve(stream, headers, target.value, signal)
    } finally {
      open -= 1
    }
  }

  async function serve(
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    target: Target,
    signal: AbortSignal,
  ): Promise<void> {
    const { upgrade } = options
    // Checked before a person is asked; secrets are read only once the request is permitted.
    const named = target.method === null ? null : upgrade?.secrets.check(onlyTexts(headers), target)
    if (named?.ok === false) return refuse(stream, named.error)
    const permit = await egress.admit(target, signal)
    if (!permit.ok) return refuse(stream, permit.error)
    if (stream.destroyed || signal.aborted) return
    const parts = { egress, limits, signal }
    if (target.method === null) await serveTunnel(stream, permit.value, parts)
    else await servePlain(stream, headers, permit.value, { ...parts, upgrade })
  }
}

/** Reads the target of a stream; all of it is untrusted. */
function readTarget(headers: IncomingHttpHeaders, canUpgrade: boolean): Result<Target, WireError> {
  const {
    ':method': method = '',
    ':authority': authority = '',
    ':scheme': scheme,
    ':path': path = '',
  } = headers
  const refused = (text: string): Result<Target, WireError> => ({
    ok: false,
    error: gatewayError('invalid_request', `Refused: ${text}.`),
  })
  const isTunnel = method === 'CONNECT'
  if (!isTunnel && (scheme !== 'http' || !path.startsWith('/')))
    return refused('a request to an https address goes through a tunnel (CONNECT), with TLS of your own')
  const wanted = isTunnel ? undefined : headers[upgradeHeader]
  if (wanted !== undefined && (wanted !== 'https' || !canUpgrade))
    return refused(`${upgradeHeader} takes https, and only where the host makes such requests`)
  // For http the default port is a non-default port of https.
  const place = wanted === undefined ? `http://${authority}` : `https://${authority.replace(/:80$/, '')}`
  const parsed = isTunnel ? parseAuthority(authority) : parseTarget(place + path, method)
  if (!parsed.ok) return refused(parsed.error)
  if (parsed.value.host === gatewayAuthority)
    return refused('the gateway itself is not reached through the proxy; it serves the agent alone')
  return parsed
}
