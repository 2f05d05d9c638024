/**
 * What is kept of the sign-ins: a record that may be shown, and its tokens in the vault. Whoever changes a sign-in holds its
 * lock, so that a renewal brings back none that was ended or replaced meanwhile.
 */
import { randomBytes } from 'node:crypto'
import path from 'node:path'
import type { OAuthTokens } from '@modelcontextprotocol/client'
import type { KeyringPlace } from '../keys/keyring.ts'
import { takeLock } from '../locks/file-lock.ts'
import { type SignInServer, signInIdOf } from '../mcp/oauth-settings.ts'
import { type Folders, prepareFolders } from '../state/folders.ts'
import { isScope } from './discovery.ts'
import type { SignedIn } from './sign-in.ts'
import { requireStorable, type SignInRecord, type SignInRecords } from './sign-in-records.ts'
import { type TokenSecrets, TokenVault } from './token-vault.ts'

export interface StoredSignInsOptions {
  readonly place: KeyringPlace & { readonly folders: Folders }
  readonly records: SignInRecords
  readonly now: () => number
}

/** Longer than a renewal takes. */
const lockWaitMs = 60_000
/** A server that says more is not believed. */
const lifetimeMaxSeconds = 10 * 365 * 24 * 3_600

interface Known {
  readonly revision: string
  readonly secrets: TokenSecrets
}

export class StoredSignIns {
  readonly #options: StoredSignInsOptions
  readonly #vault: TokenVault
  readonly #known = new Map<string, Known>()

  constructor(options: StoredSignInsOptions) {
    this.#options = options
    this.#vault = new TokenVault(options.place)
  }

  /** For one change at a time, also among processes. Dispose to release. @throws {CaissonError} `state_unavailable` */
  async lock(id: string): Promise<AsyncDisposable> {
    const { folders } = this.#options.place
    await prepareFolders(folders)
    return await takeLock(path.join(folders.locks, `mcp-${id}.lock`), { waitMs: lockWaitMs })
  }

  /** @throws {CaissonError} `state_unavailable` */
  async secretsOf({ id, revision, place }: SignInRecord): Promise<TokenSecrets> {
    const known = this.#known.get(id)
    if (known?.revision === revision) return known.secrets
    const secrets = await this.#vault.read(id, place)
    this.#known.set(id, { revision, secrets })
    return secrets
  }

  /** Keeps a new sign-in in the place of an earlier one. @throws {CaissonError} as {@link store} */
  async begin(
    server: SignInServer,
    { authorization, client, tokens, scope }: SignedIn,
  ): Promise<SignInRecord> {
    const { url, issuer, metadata, resource } = authorization
    const registeredSecret = server.oauth.clientId === undefined ? client.client_secret : undefined
    const method = 'token_endpoint_auth_method' in client ? client.token_endpoint_auth_method : undefined
    const revocation =
      metadata !== undefined && 'revocation_endpoint' in metadata ? metadata.revocation_endpoint : undefined
    const authMethods = metadata?.token_endpoint_auth_methods_supported
    const record: SignInRecord = {
      id: signInIdOf(server),
      server: server.name,
      url: server.url,
      flow: server.oauth.flow ?? 'code',
      endpoints: {
        url,
        issuer,
        token: metadata?.token_endpoint ?? new URL('/token', url).href,
        ...(revocation === undefined ? {} : { revocation: String(revocation) }),
        ...(authMethods === undefined ? {} : { authMethods: [...authMethods] }),
      },
      ...(resource === undefined ? {} : { resource }),
      clientId: client.client_id,
      ...(typeof method === 'string' ? { clientAuthMethod: method } : {}),
      ...(scope === undefined ? {} : { scope }),
      hasRefreshToken: false,
      signedInAt: this.#options.now(),
      revision: newRevision(),
      place: 'file',
      isOver: false,
    }
    return await this.store(record, tokens, registeredSecret)
  }

  /**
   * Keeps other tokens of a sign-in.
   * @throws {CaissonError} `not_possible_now` for what cannot be kept, `state_unavailable`, `state_corrupted`
   */
  async store(before: SignInRecord, tokens: OAuthTokens, clientSecret?: string): Promise<SignInRecord> {
    const { expiresAt: _, wanted: _wanted, ...rest } = before
    const secrets: TokenSecrets = {
      accessToken: tokens.access_token,
      ...(tokens.refresh_token === undefined ? {} : { refreshToken: tokens.refresh_token }),
      ...(clientSecret === undefined ? {} : { clientSecret }),
    }
    const fields = {
      ...rest,
      ...(isScope(tokens.scope) ? { scope: tokens.scope } : {}),
      ...(tokens.expires_in === undefined ? {} : { expiresAt: this.#expiryOf(tokens.expires_in) }),
      hasRefreshToken: tokens.refresh_token !== undefined,
      revision: newRevision(),
      isOver: false,
    }
    // Before the vault has anything that no record names.
    requireStorable(fields)
    const record = { ...fields, place: await this.#vault.put(before.id, secrets) }
    await this.#options.records.keep(record)
    this.#known.set(record.id, { revision: record.revision, secrets })
    return record
  }

  /** Removes tokens and record. What cannot be removed stays listed. @throws {CaissonError} `state_unavailable` */
  async remove({ id, place }: SignInRecord): Promise<void> {
    await this.#vault.remove(id, place)
    await this.#options.records.forget(id)
    this.#known.delete(id)
  }

  #expiryOf(seconds: number): number {
    const bounded = seconds > 0 ? Math.min(seconds, lifetimeMaxSeconds) : 0
    return this.#options.now() + Math.round(bounded * 1_000)
  }
}

function newRevision(): string {
  return randomBytes(8).toString('hex')
}
