/** The sign-ins of a user to MCP servers. Loads what speaks OAuth only where one is needed. */
import { type SignInServer, signInIdOf, signInServersOf } from '../mcp/oauth-settings.ts'
import { SignInRecords } from './sign-in-records.ts'
import type { SignIns, SignInsOptions } from './sign-ins.ts'

export class McpSignIns {
  /** Without secrets. */
  readonly records: SignInRecords
  readonly #options: SignInsOptions
  readonly #configured: () => Promise<Readonly<Record<string, unknown>>>
  #loaded: Promise<SignIns> | undefined

  /** @param configured the servers of the configuration, as they are now */
  constructor(options: SignInsOptions, configured: () => Promise<Readonly<Record<string, unknown>>>) {
    this.#options = options
    this.#configured = configured
    this.records = new SignInRecords(options.place.folders)
  }

  /** The servers of the configuration as it has them, valid or not. @throws {CaissonError} `invalid_config` */
  async configured(): Promise<Readonly<Record<string, unknown>>> {
    return await this.#configured()
  }

  /** The servers of the configuration that can be signed in to. @throws {CaissonError} `invalid_config` */
  async servers(): Promise<ReadonlyMap<string, SignInServer>> {
    return signInServersOf(await this.#configured())
  }

  /** Whether requests to this server may carry a token now: signed in, or a client that needs no person. */
  async isReady(server: SignInServer): Promise<boolean> {
    const isClients = server.oauth.flow === 'client-credentials'
    return isClients || (await this.records.find(signInIdOf(server))) !== undefined
  }

  async load(): Promise<SignIns> {
    this.#loaded ??= import('./sign-ins.ts').then(({ SignIns }) => new SignIns(this.#options, this.records))
    return await this.#loaded
  }
}
