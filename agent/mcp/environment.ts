/** What MCP servers run on in the guest, and which of them a run has. */
import type { Duplex } from 'node:stream'
import type { McpServer } from '#specs/protocol/extension.ts'
import type { ExecRequest } from '../link/root-helper.ts'
import type { StreamOpener } from '../proxy/outward.ts'
import type { ProgramNetwork } from '../proxy/proxy.ts'
import type { FileToolsOptions } from '../workspace/file-access.ts'
import type { OfferSource } from './offer.ts'

/** What the guest gives servers to run on. */
export interface McpEnvironment {
  /** Starts a program of the sandbox, which ends with the connection. */
  openProgram(request: Omit<ExecRequest, 'stdin'>): Promise<Duplex>
  /** The way of programs to the network. */
  readonly network: Pick<ProgramNetwork, 'prepare'>
  /** The way to the host, for servers at an address. */
  readonly http: StreamOpener
  /** The workspace, where its own servers are named. */
  readonly files?: FileToolsOptions
}

export interface ChosenServer {
  readonly name: string
  readonly source: OfferSource
  readonly config: McpServer
}
