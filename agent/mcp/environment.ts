/** What the guest provides to MCP servers. */
import type { Duplex } from 'node:stream'
import type { McpServer } from '#specs/protocol/extension.ts'
import type { ExecRequest } from '../link/root-helper.ts'
import type { StreamOpener } from '../proxy/egress-stream.ts'
import type { ProgramNetwork } from '../proxy/proxy.ts'
import type { FileToolsOptions } from '../workspace/file-access.ts'
import type { OfferSource } from './offer.ts'

/** What servers need from the guest. */
export interface McpEnvironment {
  /** Starts a program in the sandbox, which ends with the connection. */
  openProgram(request: Omit<ExecRequest, 'stdin'>): Promise<Duplex>
  /** Network access for programs. */
  readonly network: Pick<ProgramNetwork, 'prepare'>
  /** The path to the host, for servers with an address. */
  readonly http: StreamOpener
  /** The workspace, which may name its own servers. */
  readonly files?: FileToolsOptions
}

export interface ChosenServer {
  readonly name: string
  readonly source: OfferSource
  readonly config: McpServer
}
