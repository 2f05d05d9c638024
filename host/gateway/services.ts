/** What the gateway serves beside the model route: by exact path, and everything that goes outward. */
import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2'

/** Serves one stream of the guest and ends it; a rejection is a bug of ours, which the guest is told of without words. */
export type ServeStream = (
  stream: ServerHttp2Stream,
  headers: IncomingHttpHeaders,
  /** Aborted when the guest goes away or the run is over. */
  signal: AbortSignal,
) => Promise<void>

export interface GatewayServices {
  /** By exact path under the name `gateway`. */
  readonly paths: Readonly<Record<string, { readonly method: string; readonly serve: ServeStream }>>
  /** Every other authority: tunnels and plain requests of programs. */
  readonly outward: ServeStream
}
