/** The token of the service, and which Host and Origin a request may name (DNS rebinding, other sites). */
import { randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import { mkdir, open, rename } from 'node:fs/promises'
import { isIP } from 'node:net'
import path from 'node:path'
import { CaissonError, errorMessage, hasCode } from '#specs/errors.ts'
import { type Caller, type Callers, owner } from './callers.ts'
import { Refusal } from './problems.ts'

const tokenBytes = 32
const tokenForm = /^[A-Za-z0-9_-]{43}$/

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

/**
 * The token of the service, made at the first start. The file is the user's alone (mode 0600).
 * @param directory made when it is missing
 * @throws {CaissonError} `state_unavailable` when others can read the file, or it has something else
 */
export async function readToken(
  directory: string,
): Promise<{ readonly file: string; readonly token: string }> {
  const file = path.join(directory, 'token')
  await mkdir(directory, { recursive: true, mode: 0o700 })
  const known = await readIfThere(file)
  if (known !== undefined) return { file, token: known }
  const token = randomBytes(tokenBytes).toString('base64url')
  const draft = `${file}.${process.pid}`
  {
    await using handle = await open(draft, 'wx', 0o600)
    await handle.writeFile(`${token}\n`)
    await handle.sync()
  }
  await rename(draft, file)
  return { file, token }
}

async function readIfThere(file: string): Promise<string | undefined> {
  try {
    await using handle = await open(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
    const found = await handle.stat()
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(128), 0, 128, 0)
    const token = buffer.toString('utf8', 0, bytesRead).trim()
    const isMine =
      found.isFile() && found.uid === (process.getuid?.() ?? found.uid) && (found.mode & 0o077) === 0
    if (isMine && tokenForm.test(token)) return token
    throw new CaissonError(
      'state_unavailable',
      `${file} is no token of the service: expected 43 letters, digits, "-" and "_" in a file of mode 0600`,
      { remedy: 'remove the file; the next start makes a new token' },
    )
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined
    if (hasCode(error, 'state_unavailable')) throw error
    throw new CaissonError('state_unavailable', `${file} cannot be read: ${errorMessage(error)}`, {
      cause: error,
    })
  }
}
