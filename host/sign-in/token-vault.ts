/**
 * Keeps the tokens of sign-ins: in the system's keyring, or, where there is none, in files of the private state folder.
 * Holds secrets alone; what may be shown is in `sign-in-records.ts`.
 */
import { mkdir, readFile, rm } from 'node:fs/promises'
import path from 'node:path'
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { reasonOf } from '#specs/node/file-error.ts'
import { replaceFile } from '../files/durable.ts'
import { parseJson } from '../files/json.ts'
import {
  dropFromKeyring,
  findKeyring,
  type KeyringPlace,
  putIntoKeyring,
  readFromKeyring,
} from '../keys/keyring.ts'

const SecretText = z.string().min(1).max(16_384)

export const TokenSecrets = z.strictObject({
  accessToken: SecretText,
  refreshToken: SecretText.exactOptional(),
  /** Of a client that was registered for this sign-in. */
  clientSecret: SecretText.exactOptional(),
})
export type TokenSecrets = Readonly<z.infer<typeof TokenSecrets>>

export type VaultPlace = 'keyring' | 'file'

export class TokenVault {
  readonly #place: KeyringPlace

  constructor(place: KeyringPlace) {
    this.#place = place
  }

  /** @returns where they are now @throws {CaissonError} `state_unavailable` */
  async put(id: string, secrets: TokenSecrets): Promise<VaultPlace> {
    const text = JSON.stringify(secrets)
    const hasKeyring = (await findKeyring(this.#place.env)).ok
    if (hasKeyring && (await putIntoKeyring(nameOf(id), text, this.#place)).ok) {
      await rm(this.#file(id), { force: true })
      return 'keyring'
    }
    const file = this.#file(id)
    try {
      await mkdir(path.dirname(file), { recursive: true, mode: 0o700 })
      await replaceFile(file, text)
    } catch (cause) {
      throw unavailable(`the tokens cannot be written to ${file}: ${reasonOf(cause)}`, cause)
    }
    return 'file'
  }

  /** @throws {CaissonError} `state_unavailable` */
  async read(id: string, place: VaultPlace): Promise<TokenSecrets> {
    const parsed = TokenSecrets.safeParse(parseJson(await this.#text(id, place)))
    if (parsed.success) return parsed.data
    throw unavailable('the stored tokens cannot be read: they are in another form', undefined)
  }

  /** @throws {CaissonError} `state_unavailable` */
  async remove(id: string, place: VaultPlace): Promise<void> {
    await rm(this.#file(id), { force: true })
    if (place === 'file') return
    const removed = await dropFromKeyring(nameOf(id), this.#place)
    if (!removed.ok) throw unavailable(removed.error, undefined)
  }

  async #text(id: string, place: VaultPlace): Promise<string> {
    if (place === 'file')
      return await readFile(this.#file(id), 'utf8').catch((cause: unknown) => {
        throw unavailable(`the stored tokens cannot be read: ${reasonOf(cause)}`, cause)
      })
    const read = await readFromKeyring(nameOf(id), this.#place)
    if (!read.ok) throw unavailable('the system’s keyring does not give the stored tokens', undefined)
    return read.value
  }

  #file(id: string): string {
    return path.join(this.#place.folders.home, 'mcp-tokens', `${id}.json`)
  }
}

function nameOf(id: string): string {
  return `mcp-${id}`
}

function unavailable(message: string, cause: unknown): CaissonError {
  return new CaissonError('state_unavailable', message, { cause })
}
