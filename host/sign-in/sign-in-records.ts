/** What is known of each sign-in, without its secrets: a file of the state folder. */
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { McpServerName } from '#specs/protocol/extension.ts'
import { describeIssues, plainMessagesWithoutValues } from '#specs/protocol/issue-text.ts'
import type { Folders } from '../state/folders.ts'
import { JsonFile } from '../state/json-file.ts'

const recordsMaxCount = 200

const Text = z.string().max(4_096)
const Time = z.number().int().nonnegative()

/** Of the authorization server, as it was when the person signed in: tokens go nowhere else. */
const Endpoints = z.strictObject({
  url: Text,
  issuer: Text,
  token: Text,
  revocation: Text.exactOptional(),
  authMethods: z.array(Text).max(32).exactOptional(),
})

export const SignInRecord = z.strictObject({
  /** As of `signInIdOf`. */
  id: z.string().regex(/^[0-9a-f]{32}$/),
  server: McpServerName,
  url: Text,
  flow: z.enum(['code', 'device', 'client-credentials']),
  endpoints: Endpoints,
  resource: Text.exactOptional(),
  clientId: Text,
  /** How the client shows that it is one. Absent: by what the server supports. */
  clientAuthMethod: Text.exactOptional(),
  scope: Text.exactOptional(),
  /** ms since 1970. Absent: the server did not say. */
  expiresAt: Time.exactOptional(),
  hasRefreshToken: z.boolean(),
  signedInAt: Time,
  /** Another one with each change of the tokens. */
  revision: z.string().regex(/^[0-9a-f]{16}$/),
  place: z.enum(['keyring', 'file']),
  /** Scopes that the server asked for since. */
  wanted: Text.exactOptional(),
  /** The person has to sign in again. */
  isOver: z.boolean(),
})
export type SignInRecord = Readonly<z.infer<typeof SignInRecord>>

/**
 * Servers choose many of its fields, and one that does not fit would make the whole file unreadable.
 * @throws {CaissonError} `not_possible_now`
 */
export function requireStorable(record: unknown): void {
  const parsed = SignInRecord.safeParse(record, plainMessagesWithoutValues)
  if (parsed.success) return
  const issues = describeIssues(parsed.error, { root: 'the sign-in', max: 1 })
  throw new CaissonError('not_possible_now', `what the server says of itself cannot be kept: ${issues}`)
}

const RecordFile = z.strictObject({ signIns: z.array(SignInRecord).max(recordsMaxCount) })

export class SignInRecords {
  readonly #file: JsonFile<z.infer<typeof RecordFile>>

  constructor(folders: Pick<Folders, 'home' | 'locks'>) {
    this.#file = new JsonFile(folders, 'mcp-sign-ins.json', RecordFile, { signIns: [] })
  }

  /** Oldest first. @throws {CaissonError} `state_unavailable`, `state_corrupted` */
  async list(): Promise<readonly SignInRecord[]> {
    return (await this.#file.read()).signIns
  }

  /** @throws {CaissonError} as {@link list} */
  async find(id: string): Promise<SignInRecord | undefined> {
    return (await this.list()).find((record) => record.id === id)
  }

  /** Replaces the record with its ID. @throws {CaissonError} as {@link list}, `limit_reached`, `not_possible_now` */
  async keep(record: SignInRecord): Promise<void> {
    requireStorable(record)
    await this.#file.change(({ signIns }) => {
      const others = signIns.filter(({ id }) => id !== record.id)
      if (others.length >= recordsMaxCount)
        throw new CaissonError(
          'limit_reached',
          `you are signed in to ${recordsMaxCount} MCP servers, the limit`,
          {
            remedy: 'sign out of some with caisson mcp logout',
          },
        )
      return { signIns: [...others, record] }
    })
  }

  /** Changes some fields, if the record is still of this revision. @throws {CaissonError} as {@link keep} */
  async amend(
    { id, revision }: Pick<SignInRecord, 'id' | 'revision'>,
    fields: Partial<SignInRecord>,
  ): Promise<void> {
    await this.#file.change((content) => {
      const isMeant = (record: SignInRecord) => record.id === id && record.revision === revision
      const meant = content.signIns.find(isMeant)
      if (meant === undefined) return content
      const changed = { ...meant, ...fields }
      requireStorable(changed)
      return { signIns: content.signIns.map((record) => (record === meant ? changed : record)) }
    })
  }

  /** @throws {CaissonError} as {@link list} */
  async forget(id: string): Promise<void> {
    await this.#file.change((content) =>
      content.signIns.some((record) => record.id === id)
        ? { signIns: content.signIns.filter((record) => record.id !== id) }
        : content,
    )
  }
}
