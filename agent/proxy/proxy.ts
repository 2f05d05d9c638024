/**
 * Network access for the sandbox: a proxy on loopback, loaded when the first program runs, and a record of refused
 * connections. Unless the host allows a connection, it is refused with a message.
 */
import { once } from 'node:events'
import type { StreamOpener } from './egress-stream.ts'
import { Refusals, type RefusalWatch } from './refusals.ts'

/** The part that tools which run programs need. */
export interface ProgramNetwork {
  /**
   * Starts the proxy if needed. Returns the environment for programs, and an error message when it cannot listen; the
   * next call tries again.
   */
  prepare(): Promise<{ readonly env: Readonly<Record<string, string>>; readonly problem: string | null }>
  /** Starts recording refused connections. */
  watch(): RefusalWatch
}

/** @param http returns the path to the host; called for each connection */
export function createProgramNetwork(http: StreamOpener, port = proxyPort): ProgramNetwork {
  const refusals = new Refusals()
  let listening: Promise<string | null> | undefined

  const listen = async (): Promise<string | null> => {
    // Loaded late: not needed to be ready for a task.
    const { createProxyServer } = await import('./server.ts')
    const server = createProxyServer({ http, refusals })
    try {
      await once(server.listen(port, proxyHost), 'listening')
      server.on('error', () => undefined)
      return null
    } catch (error) {
      return `the proxy could not listen on ${proxyHost}:${port} (${String(error)}): programs have no network`
    }
  }

  return {
    prepare: async () => {
      listening ??= listen()
      const problem = await listening
      if (problem !== null) listening = undefined
      return { env: proxyEnvironment, problem }
    },
    watch: () => refusals.watch(),
  }
}

const proxyHost = '127.0.0.1'
/** Fixed, so that configuration files can contain it; a usual proxy port that development servers do not use. */
const proxyPort = 3128

const proxyUrl = `http://${proxyHost}:${proxyPort}`
/** Addresses inside the VM are reached directly. */
const inside = 'localhost,127.0.0.1,::1,0.0.0.0,caisson'

/**
 * curl reads only lower-case `http_proxy`, others the upper case. No ALL_PROXY: other protocols cannot pass, and
 * without a proxy they fail at once with a clear error.
 */
export const proxyEnvironment: Readonly<Record<string, string>> = {
  HTTP_PROXY: proxyUrl,
  HTTPS_PROXY: proxyUrl,
  NO_PROXY: inside,
  http_proxy: proxyUrl,
  https_proxy: proxyUrl,
  no_proxy: inside,
  // Node reads the other variables only when this is set.
  NODE_USE_ENV_PROXY: '1',
  // Disables update checks: each would be a refused connection.
  PIP_DISABLE_PIP_VERSION_CHECK: '1',
  NPM_CONFIG_UPDATE_NOTIFIER: 'false',
  NPM_CONFIG_FUND: 'false',
}
