/** The gateway's services besides the model route: by exact path, and all egress. */
import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2'

/**
 * Serves one stream of the guest and ends it. A rejection is an internal error, which the guest sees without details.
 */
export type ServeStream = (
  stream: ServerHttp2Stream,
  headers: IncomingHttpHeaders,
  /** Aborts when the guest disconnects or the run has ended. */
  signal: AbortSignal,
) => Promise<void>

export interface GatewayServices {
  /** By exact path under the name `gateway`. */
  readonly paths: Readonly<Record<string, { readonly method: string; readonly serve: ServeStream }>>
  /** All other authorities: tunnels and plain requests of programs. */
  readonly egress: ServeStream
}
