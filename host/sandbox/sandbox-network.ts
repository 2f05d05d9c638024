/**
 * What programs of a sandbox reach outside: what the rules allow, judged and connected as of a run. Nobody is asked, so
 * what a rule would ask about is refused. There is no model, no web tool, and no secret but those that the caller names.
 */
import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2'
import type { HostEvent } from '#specs/protocol/event.ts'
import { createConnector } from '../egress/connect.ts'
import type { EgressPolicy } from '../egress/policy.ts'
import { type AccessAnswers, RunEgress } from '../egress/run-egress.ts'
import { gatewayAuthority } from '../gateway/gateway.ts'
import { sendError } from '../gateway/relay.ts'
import { createEgressServer } from '../gateway/serve-egress.ts'
import { gatewayError } from '../net/gateway-error.ts'
import type { Network } from '../net/network.ts'
import type { Secrets } from '../secrets/secrets.ts'

export interface SandboxNetwork {
  readonly policy: EgressPolicy
  /** Takes a stream to an address outside; false leaves it to others. */
  handleStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): boolean
  /** Ends what is open and refuses what comes. */
  close(): Promise<void>
}

function nobodyIsAsked(remedy: string): AccessAnswers {
  const answer = `a sandbox asks nobody; ${remedy}`
  return {
    granted: () => [],
    used: () => undefined,
    askFor: async () => ({ ok: false, error: answer }),
    decide: async () => ({ decision: 'deny', hint: answer }),
  }
}

interface SandboxNetworkOptions {
  readonly policy: EgressPolicy
  readonly network: Network
  /** Those that programs may use. Absent: none, and the host makes no request by https in their place. */
  readonly secrets?: Secrets
  /** Takes each refusal, and each connection that opened or ended. */
  readonly log: (entry: object) => void
  /** What a program that is refused reads about how to allow the host; absent: the library's option. */
  readonly remedy?: string
}

export function openSandboxNetwork({
  policy,
  network,
  secrets,
  log,
  remedy = 'allow the host with egress.rules',
}: SandboxNetworkOptions): SandboxNetwork {
  const connect = createConnector({ network })
  const note = async (event: HostEvent): Promise<true> => {
    log(event)
    return true
  }
  const egress = new RunEgress({ policy, access: nobodyIsAsked(remedy), connect, note })
  secrets?.onUnreadable((message) => log({ level: 'warn', message }))
  const upgrade =
    secrets === undefined ? {} : { upgrade: { secrets, secureContext: () => network.secureContext() } }
  const serveEgress = createEgressServer(egress, upgrade)
  const closing = new AbortController()
  const open = new Set<Promise<void>>()

  async function serve(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): Promise<void> {
    const gone = new AbortController()
    stream.on('error', () => undefined)
    stream.once('close', () => gone.abort())
    try {
      await serveEgress(stream, headers, AbortSignal.any([gone.signal, closing.signal]))
    } catch (error) {
      log({ level: 'error', message: String(error) })
      sendError(stream, gatewayError('upstream_broken', 'The host failed on this request.'))
    } finally {
      if (!stream.destroyed && !stream.readableEnded) stream.resume()
    }
  }

  return {
    policy,
    handleStream(stream, headers) {
      const isOutside = headers[':method'] === 'CONNECT' || headers[':authority'] !== gatewayAuthority
      if (!isOutside || closing.signal.aborted) return false
      const work = serve(stream, headers).finally(() => open.delete(work))
      open.add(work)
      return true
    },
    close: async () => {
      closing.abort()
      await Promise.allSettled(open)
    },
  }
}
