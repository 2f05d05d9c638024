/**
 * The sandbox's way to the network: a proxy on loopback, loaded and listening from the first program on, and the
 * connections that it could not make. Without a host that allows something it refuses everything, in words.
 */
import { once } from 'node:events'
import { proxyEnvironment, proxyHost, proxyPort } from './environment.ts'
import type { StreamOpener } from './outward.ts'
import { Refusals, type RefusalWatch } from './refusals.ts'

/** What the tools that run programs need of it. */
export interface ProgramNetwork {
  /**
   * Sees to it that the proxy listens. Gives what programs are told in their environment, and a problem in words where
   * it cannot listen; the next call tries again.
   */
  prepare(): Promise<{ readonly env: Readonly<Record<string, string>>; readonly problem: string | null }>
  /** Watches for connections that do not come about. */
  watch(): RefusalWatch
}

/** @param http the way to the host; asked for with each connection */
export function createProgramNetwork(http: StreamOpener, port = proxyPort): ProgramNetwork {
  const refusals = new Refusals()
  let listening: Promise<string | null> | undefined

  const listen = async (): Promise<string | null> => {
    // Late: nothing of it is needed to be ready for a task.
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
