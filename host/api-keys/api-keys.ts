/**
 * API keys of the HTTP service, in the state folder or a store of several services: made, listed, revoked and recognized.
 * A secret is returned once and never stored. A file that cannot be read admits no key.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import { lstat } from 'node:fs/promises'
import * as z from 'zod'
import { CaissonError, requireText, withCode } from '#specs/errors.ts'
import { errnoOf, reasonOf } from '#specs/node/file-error.ts'
import { Milliseconds, Sha256 } from '#specs/protocol/text.ts'
import { type Scope, scopes } from '#specs/service/route.ts'
import { checkArguments } from '../files/check-arguments.ts'
import { type Folders, prepareFolders } from '../state/folders.ts'
import { JsonFile } from '../state/json-file.ts'

const keysMaxCount = 1_000
const idForm = /^[0-9a-f]{12}$/
const secretForm = /^caisson_([0-9a-f]{12})_[A-Za-z0-9_-]{43}$/

const KeyName = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, 'expected 1 to 64 of A-Z a-z 0-9 . _ -')
  .refine((name) => !idForm.test(name), 'has the form of an ID, so that nobody could tell the two apart')
const Scopes = z.array(z.enum(scopes)).min(1).max(scopes.length)

const ApiKeyQuotas = z.strictObject({
  /** Requests in any 60 seconds. */
  maxRequestsPerMinute: z.int().min(1).optional(),
  /** Runs that a process carries out at once, and commands over results. */
  maxRuns: z.int().min(1).optional(),
  /** Input and output tokens of the runs that started on one day (UTC). */
  maxTokens: z.int().min(1).optional(),
  /** US dollars of the runs that started on one day (UTC). */
  maxCostUsd: z.number().positive().optional(),
})
/** What a key may use. Absent: no limit of the key. */
export type ApiKeyQuotas = Readonly<z.infer<typeof ApiKeyQuotas>>

const ApiKey = z.strictObject({
  /** 12 hex digits; part of the secret. */
  id: z.string().regex(idForm),
  /** Unique among the keys that are not revoked. */
  name: KeyName,
  scopes: Scopes,
  createdAt: Milliseconds,
  /** Absent: it does not expire. */
  expiresAt: Milliseconds.optional(),
  quotas: ApiKeyQuotas,
})
export type ApiKey = Readonly<z.infer<typeof ApiKey>>

const StoredKey = ApiKey.extend({
  /**
   * SHA-256 of the whole secret. A slow hash protects words that people choose; nobody can guess 256 random bits, and a
   * slow hash would let anybody who sends wrong keys occupy the processor.
   */
  sha256: Sha256,
})
export const KeyFile = z.strictObject({ keys: z.array(StoredKey).max(keysMaxCount) })
type KeyFile = z.infer<typeof KeyFile>
/** Keys with the digests of their secrets. */
export type StoredKeys = KeyFile

/** Where keys are kept for several services, such as in the database of a fleet. */
export interface ApiKeyStore {
  /** For people. */
  readonly place: string
  /** May be half a second old. @throws {CaissonError} `state_unavailable`, `state_corrupted` */
  read(): Promise<StoredKeys>
  /** One after another for all services. @throws {CaissonError}; what `make` throws */
  change(make: (keys: StoredKeys['keys']) => StoredKeys['keys']): Promise<void>
}

export interface ApiKeyOptions {
  /** 1 to 64 of A-Z a-z 0-9 . _ - */
  readonly name: string
  /** At least one; `admin` has all of them. */
  readonly scopes: readonly Scope[]
  /** Milliseconds from now. Default: it does not expire. */
  readonly expiresInMs?: number
  /** Default: none. */
  readonly quotas?: ApiKeyQuotas
}
const Options = z.strictObject({
  name: KeyName,
  scopes: Scopes,
  expiresInMs: z
    .int()
    .min(1)
    .max(100 * 366 * 86_400_000)
    .optional(),
  quotas: ApiKeyQuotas.default({}),
})
const optionNames = { '': Object.keys(Options.shape), quotas: Object.keys(ApiKeyQuotas.shape) }

export interface CreatedApiKey {
  readonly key: ApiKey
  /** `caisson_ID_…`; cannot be read again. */
  readonly secret: string
}

export class ApiKeys {
  readonly #folders: Folders
  readonly #file: JsonFile<KeyFile>
  readonly #now: () => number
  readonly #store: ApiKeyStore | undefined
  #known: { readonly version: string; readonly content: KeyFile } | undefined

  /** @param now ms since 1970 @param store in the place of the file */
  constructor(folders: Folders, now: () => number = Date.now, store?: ApiKeyStore) {
    this.#folders = folders
    this.#file = new JsonFile(folders, 'api-keys.json', KeyFile, { keys: [] })
    this.#now = now
    this.#store = store
  }

  /** Where the keys are, for people: a path, or the address of a fleet. */
  get file(): string {
    return this.#store?.place ?? this.#file.file
  }

  /**
   * Makes a key. Services that run accept it at once.
   * @throws {CaissonError} `invalid_options`, also for a name that another key has; `limit_reached`, `state_unavailable`,
   *   `state_corrupted`
   */
  async create(options: ApiKeyOptions): Promise<CreatedApiKey> {
    return await withCode(async () => {
      const given = checkArguments('the key cannot be made', Options, options, optionNames)
      const id = randomBytes(6).toString('hex')
      const secret = `caisson_${id}_${randomBytes(32).toString('base64url')}`
      const createdAt = this.#now()
      const { name, quotas, expiresInMs } = given
      const key: ApiKey = {
        ...{ id, name, quotas, createdAt },
        scopes: scopes.filter((scope) => given.scopes.includes(scope)),
        ...(expiresInMs === undefined ? {} : { expiresAt: createdAt + expiresInMs }),
      }
      await prepareFolders(this.#folders)
      await this.#change((keys) => {
        requireRoom(keys, name)
        return [...keys, { ...key, sha256: digestOf(secret).toString('hex') }]
      })
      return { key, secret }
    })
  }

  /** Oldest first, also expired ones. @throws {CaissonError} `state_unavailable`, `state_corrupted` */
  async list(): Promise<readonly ApiKey[]> {
    return await withCode(async () => (await this.#read()).keys.map(withoutDigest))
  }

  /**
   * Revokes a key. Services that run refuse it at once and end its event streams; its runs continue.
   * @param nameOrId of the key
   * @returns the key; null when there is none
   * @throws {CaissonError} `state_unavailable`, `state_corrupted`
   */
  async revoke(nameOrId: string): Promise<ApiKey | null> {
    return await withCode(async () => {
      requireText('the name or ID of the key', nameOrId)
      const isMeant = ({ id, name }: ApiKey) => id === nameOrId || name === nameOrId
      if (!(await this.#read()).keys.some(isMeant)) return null
      let revoked: ApiKey | null = null
      await this.#change((keys) => {
        const found = keys.find(isMeant)
        revoked = found === undefined ? null : withoutDigest(found)
        return keys.filter((key) => key !== found)
      })
      return revoked
    })
  }

  /**
   * The key with this secret; null for another text, also for a revoked or expired key.
   * @throws {CaissonError} `state_unavailable`, `state_corrupted`
   */
  async recognize(secret: string): Promise<ApiKey | null> {
    return await withCode(async () => {
      requireText('the secret', secret)
      const { keys } = await this.#read()
      const [, id] = secretForm.exec(secret) ?? []
      const digest = digestOf(secret)
      const key = keys.find((one) => one.id === id)
      // An unknown ID takes as long as a wrong secret.
      const isRight = timingSafeEqual(digest, key === undefined ? noDigest : Buffer.from(key.sha256, 'hex'))
      return key !== undefined && isRight && !this.#isOver(key) ? withoutDigest(key) : null
    })
  }

  /** Whether a key is neither revoked nor expired. @throws {CaissonError} `state_unavailable`, `state_corrupted` */
  async isValid(id: string): Promise<boolean> {
    return await withCode(async () => {
      requireText('the ID of the key', id)
      return (await this.#read()).keys.some((key) => key.id === id && !this.#isOver(key))
    })
  }

  #isOver({ expiresAt }: ApiKey): boolean {
    return expiresAt !== undefined && expiresAt <= this.#now()
  }

  async #change(make: (keys: KeyFile['keys']) => KeyFile['keys']): Promise<void> {
    if (this.#store !== undefined) return await this.#store.change(make)
    await this.#version()
    await this.#file.change(({ keys }) => ({ keys: make(keys) }))
  }

  /** Reads the file again once it is another one. */
  async #read(): Promise<KeyFile> {
    if (this.#store !== undefined) return await this.#store.read()
    const version = await this.#version()
    if (version !== undefined && this.#known?.version === version) return this.#known.content
    // Of a file that is replaced after its version was read, the next call reads the new content again.
    const content = await this.#file.read()
    this.#known = version === undefined ? undefined : { version, content }
    return content
  }

  /** Undefined: there is no file. @throws {CaissonError} `state_unavailable` for one that others could have written */
  async #version(): Promise<string | undefined> {
    const { file } = this.#file
    const found = await lstat(file, { bigint: true }).catch((cause: unknown) => {
      if (errnoOf(cause) === 'ENOENT') return undefined
      throw new CaissonError('state_unavailable', `cannot read ${file}: ${reasonOf(cause)}`, { cause })
    })
    if (found === undefined) return undefined
    const me = process.getuid?.()
    const isMine = me === undefined || Number(found.uid) === me
    if (found.isFile() && isMine && (found.mode & 0o077n) === 0n)
      return `${found.dev} ${found.ino} ${found.mtimeNs} ${found.ctimeNs} ${found.size}`
    throw new CaissonError(
      'state_unavailable',
      `${file} may not hold API keys: expected a file of yours with mode 0600`,
      { remedy: `check who changed it, then run: chmod 600 ${file}` },
    )
  }
}

const noDigest = Buffer.alloc(32)

function digestOf(secret: string): Buffer {
  return createHash('sha256').update(secret).digest()
}

function withoutDigest({ sha256: _, ...key }: z.infer<typeof StoredKey>): ApiKey {
  return key
}

/** @throws {CaissonError} `invalid_options`, `limit_reached` */
function requireRoom(keys: KeyFile['keys'], name: string): void {
  if (keys.some((key) => key.name === name))
    throw new CaissonError('invalid_options', `an API key has the name ${name} already`, {
      remedy: `choose another name, or revoke that key: caisson serve keys revoke ${name}`,
    })
  if (keys.length >= keysMaxCount)
    throw new CaissonError('limit_reached', `there are ${keysMaxCount} API keys, which is the limit`, {
      remedy: 'revoke some with caisson serve keys revoke',
    })
}
