/** Which Host and Origin a request may name (DNS rebinding, other sites), and who sends it. */
import { isIP } from 'node:net'
import { type Caller, type Callers, owner } from './callers.ts'
import { Refusal } from './problems.ts'

export interface AccessOptions {
  readonly callers: Callers
  /** `host:port` that requests may name, lower case. */
  readonly hosts: ReadonlySet<string>
  /** Other origins whose pages may call, such as `https://app.example.com`. */
  readonly origins: ReadonlySet<string>
}

export class Access {
  readonly #callers: Callers
  readonly #hosts: ReadonlySet<string>
  readonly #origins: ReadonlySet<string>

  constructor({ callers, hosts, origins }: AccessOptions) {
    this.#callers = callers
    this.#hosts = hosts
    this.#origins = origins
  }

  /**
   * Refuses what a page of another site can send: a name that was rebound to this address, another origin.
   * @param isLocal whether it came over the Unix socket, which no page reaches
   * @returns the other origin to name in the answer; undefined for none
   */
  checkOrigin(
    { host, origin }: { host?: string | undefined; origin?: string | undefined },
    isLocal: boolean,
  ): string | undefined {
    if (isLocal) return undefined
    if (host === undefined || !this.#hosts.has(host.toLowerCase()))
      throw new Refusal(403, 'forbidden', `the request names the host ${JSON.stringify(host ?? '')}`, {
        remedy: `use one of ${[...this.#hosts].join(', ')}, or add the name with --allow-host-name`,
      })
    if (origin === undefined || this.#isOwn(origin)) return undefined
    if (this.#origins.has(origin)) return origin
    throw new Refusal(403, 'forbidden', `the request comes from the origin ${JSON.stringify(origin)}`, {
      remedy: 'to let pages of that origin call the service, add it with --allow-origin',
    })
  }

  /**
   * Who sends a request. Over the Unix socket that is the owner, unless the request has a key.
   * @throws {Refusal} as {@link Callers.identify}
   */
  async identify(authorization: string | undefined, address: string, isLocal: boolean): Promise<Caller> {
    if (isLocal && authorization === undefined) return owner
    return await this.#callers.identify(authorization, address)
  }

  #isOwn(origin: string): boolean {
    const [, host] = /^https?:\/\/(.+)$/.exec(origin) ?? []
    return host !== undefined && this.#hosts.has(host.toLowerCase())
  }
}

/** `host:port` pairs by which a client can name an address; without the port where it is the scheme's own. */
export function hostNames(names: readonly string[], port: number, isTls: boolean): Set<string> {
  const forms = names.map((name) => (isIP(name) === 6 ? `[${name}]` : name).toLowerCase())
  const isDefault = port === (isTls ? 443 : 80)
  return new Set(forms.flatMap((name) => (isDefault ? [name, `${name}:${port}`] : [`${name}:${port}`])))
}
