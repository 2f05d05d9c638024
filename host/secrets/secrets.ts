/**
 * Named secrets for the guest's requests: they stay on the host, the guest writes `{{NAME}}`, and a request that the
 * host itself makes over TLS to a host the secret is bound to gets the value. A placeholder anywhere else is refused.
 */
import * as z from 'zod'
import { CaissonError, requireText } from '#specs/errors.ts'
import type { Result } from '#specs/protocol/error.ts'
import { describeIssues, plainMessagesWithoutValues } from '#specs/protocol/issue-text.ts'
import { KeySource } from '../keys/key-source.ts'
import { Secret } from '../keys/secret.ts'
import { gatewayError, type WireError } from '../net/gateway-error.ts'
import type { Target } from '../net/target.ts'
import { hostInUrl } from '../net/target.ts'
import { findPlaceholders, placeholderOf, replacePlaceholders } from './placeholders.ts'
import { createRedaction, noRedaction, type Redaction } from './redaction.ts'
import { readSecretHost } from './secret-host.ts'
import type { TokenSource } from './token-source.ts'

/** What the guest may know of a secret. */
interface SecretBinding {
  /** `A-Z 0-9 _`; the guest writes `{{NAME}}`. */
  readonly name: string
  /** Names, or `*.example.com` for all names below. */
  readonly hosts: readonly string[]
}

/** A secret as the user gives it: its value, or where it is taken from each time it is used. */
export type SecretSetting = { readonly hosts: readonly string[] } & (
  | { readonly value: string }
  | { readonly from: KeySource }
)

const Hosts = z.array(z.string())
const SecretSettings = z.union([
  z.strictObject({ hosts: Hosts, value: z.string().min(1) }),
  z.strictObject({ hosts: Hosts, from: KeySource }),
])

/** Headers with their secrets in them. */
interface FilledHeaders {
  readonly headers: Readonly<Record<string, string>>
  /** Names of the secrets that were put in, sorted; empty when the headers are as they were. */
  readonly names: readonly string[]
}

/** A shorter one could not be taken out of an answer without damage to what has nothing to do with it. */
const valueMinChars = 6
/** Values that are taken out of answers, the newest: a secret may be rotated any number of times. */
const usedMaxCount = 256

/** A secret with its hosts in one spelling. */
interface Setting {
  readonly hosts: readonly string[]
  readonly from: KeySource | Secret
}

/** What a program changes while runs are under way; it holds in all of them, over the configuration. */
export class SecretChanges {
  /** Null for one that was revoked. */
  readonly #settings = new Map<string, Setting | null>()

  /**
   * Adds a secret or puts another in its place, from the next request on. A run tells its agent only of those that there
   * were when it began. @throws {CaissonError} `invalid_options` for a name, host or value that cannot be
   */
  set(name: string, setting: SecretSetting): void {
    this.#settings.set(name, readSetting(name, setting))
  }

  /** From the next request on the secret is refused. */
  revoke(name: string): void {
    requireText('the name of the secret', name)
    this.#settings.set(name, null)
  }

  /** Undefined where the configuration holds. */
  find(name: string): Setting | null | undefined {
    return this.#settings.get(name)
  }

  names(): string[] {
    return [...this.#settings.keys()]
  }
}

interface SecretBounds {
  /** Names of those that may be used. Absent: all. */
  readonly only?: readonly string[]
  /** Tokens of servers, by the name of their placeholder; the agent is not told of them. */
  readonly tokens?: ReadonlyMap<string, TokenSource>
}

/** The secrets of one run, or of one sandbox. */
export class Secrets {
  readonly #resolve: (source: KeySource) => Promise<Result<Secret, string>>
  readonly #configured: ReadonlyMap<string, Setting>
  readonly #changes: SecretChanges
  readonly #only: ReadonlySet<string> | undefined
  readonly #tokens: ReadonlyMap<string, TokenSource>
  /** Hosts that a value was bound to when it was used. */
  readonly #used = new Map<string, readonly string[]>()
  #onUnreadable: (text: string) => void = () => undefined

  /**
   * @param resolve reads a source on each request, so that a rotated value applies immediately
   * @param bounds which of them there are
   * @throws {CaissonError} `invalid_options` for an invalid host name; the schema has checked the configuration
   */
  constructor(
    configured: Readonly<Record<string, { readonly from: KeySource; readonly hosts: readonly string[] }>>,
    resolve: (source: KeySource) => Promise<Result<Secret, string>>,
    changes: SecretChanges = new SecretChanges(),
    { only, tokens = new Map() }: SecretBounds = {},
  ) {
    this.#resolve = resolve
    this.#tokens = tokens
    this.#changes = changes
    this.#only = only === undefined ? undefined : new Set(only)
    this.#configured = new Map(
      Object.entries(configured).map(([name, setting]) => [name, readSetting(name, setting)]),
    )
  }

  /** What the guest may write, by name. */
  list(): SecretBinding[] {
    const names = new Set([...this.#configured.keys(), ...this.#changes.names()])
    return [...names].sort().flatMap((name) => {
      const setting = this.#find(name)
      return setting === undefined ? [] : [{ name, hosts: setting.hosts }]
    })
  }

  /** Why a secret could not be read, for the user's log; the guest learns only that it failed. */
  onUnreadable(listener: (text: string) => void): void {
    this.#onUnreadable = listener
  }

  /**
   * Takes out of what comes back from these hosts every value that was ever put into a request and that one of them may
   * carry. From no other host: what a stranger's page holds would otherwise tell which guess at a secret is right.
   */
  redactionFor(hosts: readonly string[]): Redaction {
    const values = [...this.#used].flatMap(([value, patterns]) =>
      patterns.some((pattern) => hosts.some((host) => covers(pattern, host))) ? [value] : [],
    )
    return values.length === 0 ? noRedaction : createRedaction(values)
  }

  /** Takes every value out that was ever put into a request. For what the user keeps; a guest must not be given the answer. */
  redactionForUser(): Redaction {
    return this.#used.size === 0 ? noRedaction : createRedaction([...this.#used.keys()])
  }

  /**
   * Names of the secrets in the headers of a request, sorted, if it may carry them; reads none. Refused: a name that is not
   * known, a host that the secret is not bound to, a request without TLS or that the host does not make itself.
   */
  check(headers: Readonly<Record<string, string>>, target: Target): Result<string[], WireError> {
    const names = [...new Set(Object.values(headers).flatMap(findPlaceholders))].sort()
    for (const name of names) {
      const why = this.#whyNot(name, target)
      if (why !== null) return refused(why)
    }
    return { ok: true, value: names }
  }

  /**
   * The request headers with secrets inserted; if this fails, send nothing.
   * @param headers values by name; Basic credentials may contain placeholders
   */
  async putInto(
    headers: Readonly<Record<string, string>>,
    target: Target,
  ): Promise<Result<FilledHeaders, WireError>> {
    const names = this.check(headers, target)
    if (!names.ok) return names
    const values = new Map<string, string>()
    for (const name of names.value) {
      const value = await this.#read(name)
      if (!value.ok) return refused(value.error)
      values.set(name, value.value)
    }
    if (values.size === 0) return { ok: true, value: { headers, names: [] } }
    for (const [name, value] of values) this.#remember(value, this.#hostsOf(name))
    const filled = Object.entries(headers).map(
      ([header, text]) => [header, replacePlaceholders(text, (name) => values.get(name) ?? '')] as const,
    )
    return { ok: true, value: { headers: Object.fromEntries(filled), names: names.value } }
  }

  /**
   * A server refused a request with secrets. @param token the value that stood for a token's placeholder
   * @returns what the guest gets in place of the answer; null: the answer
   */
  async refused(
    names: readonly string[],
    answer: { readonly status: number; readonly challenge: string | undefined },
    header: string | undefined,
  ): Promise<WireError | null> {
    const name = names.find((one) => this.#tokens.has(one))
    const source = name === undefined ? undefined : this.#tokens.get(name)
    if (source === undefined || (answer.status !== 401 && answer.status !== 403)) return null
    const token = /^bearer +(\S+)$/i.exec(header ?? '')?.[1] ?? ''
    const next = await source.refused(answer.status, answer.challenge, token)
    if (next === null) return null
    return next === 'renewed'
      ? gatewayError('token_renewed', 'The token of the server was renewed; make the request again.')
      : gatewayError('secret_refused', next.words)
  }

  #hostsOf(name: string): readonly string[] {
    const token = this.#tokens.get(name)
    return token === undefined ? (this.#find(name)?.hosts ?? []) : [token.host]
  }

  #find(name: string): Setting | undefined {
    if (this.#only?.has(name) === false) return undefined
    const changed = this.#changes.find(name)
    return changed === undefined ? this.#configured.get(name) : (changed ?? undefined)
  }

  /** Why a request may not carry a secret; null when it may. */
  #whyNot(name: string, target: Target): string | null {
    const { scheme, host, port, method } = target
    const shown = placeholderOf(name)
    const token = this.#tokens.get(name)
    const setting = this.#find(name)
    if (token !== undefined) {
      const why = token.whyNot(target)
      if (why !== null) return why
    } else if (setting === undefined) {
      const known = this.list().filter(({ hosts }) => hosts.some((pattern) => covers(pattern, host)))
      const those = known.map((binding) => placeholderOf(binding.name)).join(', ') || 'none'
      return `There is no secret ${shown}. Those for ${host}: ${those}.`
    } else if (!setting.hosts.some((pattern) => covers(pattern, host))) {
      return `The secret ${shown} is bound to ${setting.hosts.join(', ')}; a request to ${host} may not carry it.`
    }
    if (scheme === 'https' && method !== null) return null
    const place = `${scheme}://${hostInUrl(host)}:${port}`
    return (
      `The secret ${shown} goes out over https alone, in requests that the host makes itself; not to ${place}. ` +
      'Use web_fetch, or let a program ask an http:// address with the header "caisson-upgrade: https".'
    )
  }

  async #read(name: string): Promise<Result<string, string>> {
    const shown = placeholderOf(name)
    const token = this.#tokens.get(name)
    if (token !== undefined) return await readToken(token)
    const from = this.#find(name)?.from
    if (from === undefined) return { ok: false, error: `The secret ${shown} was revoked.` }
    const read = from instanceof Secret ? { ok: true as const, value: from } : await this.#resolve(from)
    if (!read.ok) {
      this.#onUnreadable(`the secret ${name} cannot be read: ${read.error}`)
      const remedy = `the user finds out why with \`caisson config check\` or in the run's log`
      return { ok: false, error: `The secret ${shown} cannot be read on the host; ${remedy}.` }
    }
    const value = read.value.reveal()
    if (isFit(value)) return { ok: true, value }
    return { ok: false, error: `The secret ${shown} is not fit for a header: expected ${fitWords}.` }
  }

  #remember(value: string, hosts: readonly string[]): void {
    this.#used.set(value, [...new Set([...(this.#used.get(value) ?? []), ...hosts])])
    for (const oldest of [...this.#used.keys()].slice(0, -usedMaxCount)) this.#used.delete(oldest)
  }
}

const fitWords = `at least ${valueMinChars} visible ASCII characters`

function isFit(value: string): boolean {
  return value.length >= valueMinChars && /^[\x20-\x7e]+$/.test(value)
}

async function readToken(token: TokenSource): Promise<Result<string, string>> {
  const read = await token.read()
  if (!read.ok) return read
  const value = read.value.reveal()
  return isFit(value)
    ? { ok: true, value }
    : { ok: false, error: `The token is not fit: expected ${fitWords}.` }
}

function readSetting(name: string, setting: SecretSetting): Setting {
  requireText('the name of the secret', name)
  const checked = SecretSettings.safeParse(setting, plainMessagesWithoutValues)
  if (!checked.success)
    throw new CaissonError('invalid_options', `secret ${name.slice(0, 64)}: ${describeIssues(checked.error)}`)
  if (!/^[A-Z][A-Z0-9_]{0,63}$/.test(name))
    throw new CaissonError('invalid_options', `secret ${name}: expected A-Z 0-9 _`)
  if (setting.hosts.length === 0)
    throw new CaissonError('invalid_options', `secret ${name} is bound to no host`)
  const hosts = setting.hosts.map((text) => {
    const host = readSecretHost(text)
    if (host === null)
      throw new CaissonError('invalid_options', `secret ${name}: ${text} is not the name of a host`)
    return host
  })
  return { hosts, from: 'value' in setting ? new Secret(setting.value) : setting.from }
}

function covers(pattern: string, host: string): boolean {
  return pattern.startsWith('*.')
    ? host.endsWith(pattern.slice(1)) && host.length > pattern.length - 1
    : host === pattern
}

function refused(message: string): { ok: false; error: WireError } {
  return { ok: false, error: gatewayError('secret_refused', message) }
}
