/**
 * The sign-ins of a user to MCP servers: signs in and out, and renews the tokens. One renewal of a server is under way at a
 * time, also among processes, because a refresh token may be good for one use.
 */
import { computeScopeUnion, type FetchLike, isStrictScopeSuperset } from '@modelcontextprotocol/client'
import { CaissonError } from '#specs/errors.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { KeySource } from '../keys/key-source.ts'
import type { KeyringPlace } from '../keys/keyring.ts'
import { Secret } from '../keys/secret.ts'
import { type McpOAuth, type SignInServer, signInIdOf } from '../mcp/oauth-settings.ts'
import { createRedaction, type Redaction } from '../secrets/redaction.ts'
import type { Folders } from '../state/folders.ts'
import { type Challenge, isScope, readChallenge } from './discovery.ts'
import { partsOf, refresh, requestForClient } from './grants.ts'
import { type ClientSecrets, signerOf } from './oauth-client.ts'
import { explainFailure, oauthCodeOf } from './oauth-error.ts'
import { revokeTokens } from './revoke.ts'
import { type SignInPerson, signIn } from './sign-in.ts'
import type { SignInRecord, SignInRecords } from './sign-in-records.ts'
import { StoredSignIns } from './stored-sign-ins.ts'
import type { TokenSecrets } from './token-vault.ts'

export interface SignInsOptions {
  readonly place: KeyringPlace & { readonly folders: Folders }
  readonly resolveKey: (source: KeySource) => Promise<Result<Secret, string>>
  /** Requests of sign-ins and renewals, with judged addresses. */
  readonly fetchFor: (signal: AbortSignal) => Promise<FetchLike>
  readonly now?: () => number
}

/** A token that is valid for less is renewed first. */
const earlyMs = 30_000
const renewalTimeoutMs = 45_000
/** A token that was renewed within this time and is refused again is not renewed once more. */
const renewedAgainMs = 60_000

export class SignIns {
  readonly records: SignInRecords
  readonly #options: SignInsOptions
  readonly #stored: StoredSignIns
  readonly #renewing = new Map<string, Promise<Result<Secret, string>>>()
  /** When a token was renewed because the server refused it, by ID. */
  readonly #renewedAt = new Map<string, number>()

  constructor(options: SignInsOptions, records: SignInRecords) {
    this.#options = options
    this.records = records
    this.#stored = new StoredSignIns({ place: options.place, records, now: () => this.#now() })
  }

  /** @throws {CaissonError} `not_possible_now` with the reason, without any secret */
  async signIn(server: SignInServer, person: SignInPerson, signal: AbortSignal): Promise<SignInRecord> {
    const id = signInIdOf(server)
    const secrets = await this.#clientSecrets(server.oauth)
    const before = await this.records.find(id)
    try {
      const fetch = await this.#options.fetchFor(signal)
      const earlierScope = computeScopeUnion(
        before?.wanted === undefined ? undefined : before.scope,
        before?.wanted,
      )
      const signedIn = await signIn({ server, secrets, person, fetch, signal, earlierScope })
      // A renewal of the earlier sign-in would replace this one.
      await using _ = await this.#stored.lock(id)
      return await this.#stored.begin(server, signedIn)
    } catch (cause) {
      if (isStopped(signal))
        throw new CaissonError('cancelled', `the sign-in to ${server.name} was stopped`, {
          remedy: `start it again: caisson mcp login ${server.name}`,
          cause,
        })
      const why = explainFailure(cause, redactionOf(secrets))
      throw new CaissonError('not_possible_now', `the sign-in to ${server.name} failed: ${why}`, { cause })
    }
  }

  /**
   * Revokes the tokens where the server can, and removes them.
   * @param server as it is configured now, whose client revokes them. Absent: a client without a secret of the configuration
   * @returns whether they were revoked there @throws {CaissonError} `state_unavailable` for tokens that cannot be removed
   */
  async signOut({ id }: SignInRecord, signal: AbortSignal, server?: SignInServer): Promise<boolean> {
    await using _ = await this.#stored.lock(id)
    // A renewal may have changed it meanwhile.
    const record = await this.records.find(id)
    if (record === undefined) return false
    const secrets = await this.#stored.secretsOf(record).catch(() => undefined)
    await this.#stored.remove(record)
    return secrets !== undefined && (await this.#revoke(record, secrets, server?.oauth ?? {}, signal))
  }

  /** A valid token, renewed if needed. The error is for the agent: what to do, and no secret. */
  async token(server: SignInServer): Promise<Result<Secret, string>> {
    try {
      const record = await this.records.find(signInIdOf(server))
      if (record === undefined || record.isOver) {
        if (server.oauth.flow === 'client-credentials') return await this.#renew(server, record)
        return { ok: false, error: needsSignIn(server) }
      }
      const { expiresAt } = record
      if (expiresAt !== undefined && expiresAt - earlyMs <= this.#now())
        return await this.#renew(server, record)
      return { ok: true, value: new Secret((await this.#stored.secretsOf(record)).accessToken) }
    } catch (cause) {
      return { ok: false, error: notUsable(server, cause) ?? needsSignIn(server) }
    }
  }

  /**
   * The server refused a token with 401, or 403 and `insufficient_scope`.
   * @param header `WWW-Authenticate`
   * @returns whether the request may be made again; else words for the agent, or null: the answer is about something else
   */
  async refused(
    server: SignInServer,
    status: number,
    header: string | undefined,
    token: string,
  ): Promise<'renewed' | { readonly words: string } | null> {
    try {
      return await this.#judgeRefusal(server, status, readChallenge(header, server.url), token)
    } catch (cause) {
      return { words: notUsable(server, cause) ?? needsSignIn(server) }
    }
  }

  async #judgeRefusal(
    server: SignInServer,
    status: number,
    challenge: Challenge,
    token: string,
  ): Promise<'renewed' | { readonly words: string } | null> {
    const record = await this.records.find(signInIdOf(server))
    if (record === undefined) return status === 401 ? { words: needsSignIn(server) } : null
    if (status === 403)
      return challenge.error === 'insufficient_scope' ? await this.#stepUp(server, record, challenge) : null
    if (status !== 401) return null
    const now = await this.#stored.secretsOf(record).catch(() => undefined)
    // Another request has renewed it meanwhile.
    if (now !== undefined && now.accessToken !== token) return 'renewed'
    const under = await this.#renewing.get(record.id)
    if (under !== undefined) return under.ok ? 'renewed' : { words: under.error }
    const renewedAt = this.#renewedAt.get(record.id) ?? Number.NEGATIVE_INFINITY
    if (this.#now() - renewedAt < renewedAgainMs) {
      if (challenge.scope !== undefined) await this.records.amend(record, { wanted: challenge.scope })
      return { words: `the MCP server ${server.name} does not accept its token; ${remedyFor(server)}` }
    }
    this.#renewedAt.set(record.id, this.#now())
    const renewed = await this.#renew(server, record)
    return renewed.ok ? 'renewed' : { words: renewed.error }
  }

  async #stepUp(
    server: SignInServer,
    record: SignInRecord,
    { scope }: Challenge,
  ): Promise<'renewed' | { readonly words: string }> {
    const all = computeScopeUnion(record.wanted, scope)
    // A server that asks for others each time fills no file.
    const wanted = isScope(all) ? all : scope
    const isMore = isStrictScopeSuperset(computeScopeUnion(record.scope, wanted), record.scope)
    await this.records.amend(record, wanted === undefined ? {} : { wanted })
    if (server.oauth.flow === 'client-credentials' && isMore) {
      const renewed = await this.#renew(server, { ...record, ...(wanted === undefined ? {} : { wanted }) })
      return renewed.ok ? 'renewed' : { words: renewed.error }
    }
    const which = wanted === undefined ? '' : ` (${wanted.slice(0, 300)})`
    return {
      words: `the MCP server ${server.name} demands rights${which} that the sign-in does not have; ${remedyFor(server)}`,
    }
  }

  /** @param record as it was read; a newer one of another process is taken as it is */
  #renew(server: SignInServer, record: SignInRecord | undefined): Promise<Result<Secret, string>> {
    const id = signInIdOf(server)
    const under = this.#renewing.get(id)
    if (under !== undefined) return under
    const renewal = this.#renewAlone(server, record).finally(() => this.#renewing.delete(id))
    this.#renewing.set(id, renewal)
    return renewal
  }

  async #renewAlone(server: SignInServer, seen: SignInRecord | undefined): Promise<Result<Secret, string>> {
    const id = signInIdOf(server)
    let clientSecrets: ClientSecrets = {}
    let sent: TokenSecrets | undefined
    try {
      clientSecrets = await this.#clientSecrets(server.oauth)
      await using _ = await this.#stored.lock(id)
      const record = await this.records.find(id)
      if (record !== undefined && record.revision !== seen?.revision && !record.isOver)
        return { ok: true, value: new Secret((await this.#stored.secretsOf(record)).accessToken) }
      const fetch = await this.#options.fetchFor(AbortSignal.timeout(renewalTimeoutMs))
      if (server.oauth.flow === 'client-credentials') {
        const kept = await this.#asClient(server, record, seen, clientSecrets, fetch)
        return { ok: true, value: new Secret((await this.#stored.secretsOf(kept)).accessToken) }
      }
      if (record === undefined) return { ok: false, error: needsSignIn(server) }
      sent = await this.#stored.secretsOf(record)
      if (sent.refreshToken === undefined) {
        await this.records.amend(record, { isOver: true })
        return { ok: false, error: needsSignIn(server) }
      }
      const secret = sent.clientSecret ?? clientSecrets.clientSecret?.reveal()
      const tokens = await refresh({ ...partsOf(record, secret), fetch }, sent.refreshToken)
      const kept = await this.#stored.store(record, tokens, sent.clientSecret)
      return { ok: true, value: new Secret((await this.#stored.secretsOf(kept)).accessToken) }
    } catch (cause) {
      return await this.#noteFailure(server, seen, cause, redactionOf(clientSecrets, sent))
    }
  }

  /** A code of OAuth ends the sign-in; what the network does may pass. */
  async #noteFailure(
    server: SignInServer,
    seen: SignInRecord | undefined,
    cause: unknown,
    redaction: Redaction,
  ): Promise<Result<Secret, string>> {
    const code = oauthCodeOf(cause)
    const isOver = code === 'invalid_grant' || code === 'invalid_client' || code === 'unauthorized_client'
    if (isOver && seen !== undefined) {
      await this.records.amend(seen, { isOver: true })
      return { ok: false, error: needsSignIn(server) }
    }
    const why = explainFailure(cause, redaction)
    const error = `the token for the MCP server ${server.name} cannot be renewed: ${why}`
    return { ok: false, error: notUsable(server, cause) ?? error }
  }

  async #asClient(
    server: SignInServer,
    record: SignInRecord | undefined,
    seen: SignInRecord | undefined,
    secrets: ClientSecrets,
    fetch: FetchLike,
  ): Promise<SignInRecord> {
    const nobody: SignInPerson = { openUrl: () => undefined, showCode: () => undefined }
    if (record === undefined) {
      const signal = AbortSignal.timeout(renewalTimeoutMs)
      return await this.#stored.begin(
        server,
        await signIn({ server, secrets, person: nobody, fetch, signal }),
      )
    }
    const scope = computeScopeUnion(record.scope, seen?.wanted ?? record.wanted)
    const signer = signerOf(server.oauth, secrets)
    const parts = { ...partsOf(record, secrets.clientSecret?.reveal()), signer, fetch }
    return await this.#stored.store(
      { ...record, ...(scope === undefined ? {} : { scope }) },
      await requestForClient(parts, scope),
    )
  }

  /** Never rejects: what is gone here need not be asked for again. */
  async #revoke(
    record: SignInRecord,
    secrets: TokenSecrets,
    oauth: McpOAuth,
    signal: AbortSignal,
  ): Promise<boolean> {
    try {
      const own = await this.#clientSecrets(oauth)
      const parts = partsOf(record, secrets.clientSecret ?? own.clientSecret?.reveal())
      const fetch = await this.#options.fetchFor(signal)
      return await revokeTokens(record, secrets, { ...parts, signer: signerOf(oauth, own), fetch })
    } catch {
      return false
    }
  }

  async #clientSecrets({ clientSecret, privateKey }: McpOAuth): Promise<ClientSecrets> {
    const read = async (source: KeySource | undefined): Promise<Secret | undefined> => {
      const found = source === undefined ? undefined : await this.#options.resolveKey(source)
      if (found?.ok === false) throw new CaissonError('invalid_config', found.error)
      return found?.value
    }
    const [secret, key] = [await read(clientSecret), await read(privateKey)]
    return {
      ...(secret === undefined ? {} : { clientSecret: secret }),
      ...(key === undefined ? {} : { privateKey: key }),
    }
  }

  #now(): number {
    return (this.#options.now ?? Date.now)()
  }
}

/** Of what this machine keeps the agent learns nothing; undefined for a failure of a server. */
function notUsable({ name }: SignInServer, cause: unknown): string | undefined {
  const isOurs =
    (cause instanceof CaissonError && cause.code !== 'not_possible_now') ||
    (cause instanceof Error && 'syscall' in cause)
  return isOurs
    ? `the sign-in to the MCP server ${name} cannot be used on the host; the user finds out why there: caisson mcp login ${name}`
    : undefined
}

/** By whoever asked for it, not by a time limit. */
function isStopped({ aborted, reason }: AbortSignal): boolean {
  return aborted && Object(reason).name !== 'TimeoutError'
}

function needsSignIn(server: SignInServer): string {
  return `the MCP server ${server.name} needs a sign-in; ${remedyFor(server)}`
}

function remedyFor({ name, oauth }: SignInServer): string {
  return oauth.flow === 'client-credentials'
    ? `the user checks oauth of [mcpServers.${name}]`
    : `the user signs in on the host: caisson mcp login ${name}`
}

function redactionOf({ clientSecret, privateKey }: ClientSecrets, sent?: TokenSecrets): Redaction {
  const values = [clientSecret?.reveal(), privateKey?.reveal(), ...Object.values(sent ?? {})]
  return createRedaction(values.filter((value) => typeof value === 'string'))
}
