/**
 * Stores permanent answers about network access as rules in the state folder: atomic writes, one writer at a time,
 * bounded size. An unreadable file never counts as empty, since it may contain denials.
 */

import { readFileSync, statSync } from 'node:fs'
import path from 'node:path'
import * as z from 'zod'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { errnoOf } from '#specs/node/file-error.ts'
import { EgressRule } from '#specs/protocol/egress.ts'
import { describeIssues, plainMessages } from '#specs/protocol/issue-text.ts'
import { Count, Milliseconds, RunId } from '#specs/protocol/text.ts'
import { replaceFile } from '../files/durable.ts'
import { parseJson } from '../files/json.ts'
import { stateFileWaitMs, takeLock } from '../locks/file-lock.ts'
import type { Folders } from '../state/folders.ts'

const maxGrants = 1_000

const PersistentGrant = z.strictObject({
  /** Number for revoking; never reused. */
  id: Count.min(1),
  rule: EgressRule,
  /** Run in which the person was asked. */
  runId: RunId,
  at: Milliseconds,
})
export type PersistentGrant = Readonly<z.infer<typeof PersistentGrant>>

const GrantFile = z.strictObject({ nextId: Count.min(1), grants: z.array(PersistentGrant).max(maxGrants) })
type GrantFile = z.infer<typeof GrantFile>

export class PersistentGrants {
  readonly file: string
  readonly #lock: string
  #known: { readonly version: string; readonly content: GrantFile } | undefined

  constructor({ home, locks }: Pick<Folders, 'home' | 'locks'>) {
    this.file = path.join(home, 'egress-grants.json')
    this.#lock = path.join(locks, 'egress-grants.lock')
  }

  /**
   * All current answers, oldest first; reloaded when another process changed them. Synchronous, so that no answer can
   * be revoked between check and decision.
   * @throws {CaissonError} `state_unavailable`, `state_corrupted`
   */
  list(): readonly PersistentGrant[] {
    return this.#read().grants
  }

  /** Adds the rules that are not stored yet. @throws {CaissonError} `state_unavailable`, `state_corrupted` */
  async add(rules: readonly EgressRule[], runId: string): Promise<void> {
    const checked = z.array(EgressRule).safeParse(rules, plainMessages)
    if (!checked.success)
      throw new CaissonError('invalid_rules', describeIssues(checked.error, { root: 'the rules' }))
    await this.#change(({ nextId, grants }) => {
      const have = new Set(grants.map(({ rule }) => JSON.stringify(rule)))
      const fresh = rules.filter((rule) => !have.has(JSON.stringify(rule)))
      if (grants.length + fresh.length > maxGrants)
        throw new CaissonError(
          'limit_reached',
          `${maxGrants} grants are stored already, which is the limit`,
          { remedy: 'revoke some with caisson policy revoke' },
        )
      const at = Date.now()
      const added = fresh.map((rule, index) => ({ id: nextId + index, rule, runId, at }))
      return { nextId: nextId + fresh.length, grants: [...grants, ...added] }
    })
  }

  /**
   * Removes a grant and returns it; null if the number does not exist.
   * @throws {CaissonError} `state_unavailable`, `state_corrupted`
   */
  async revoke(id: number): Promise<PersistentGrant | null> {
    if (typeof id !== 'number')
      throw new CaissonError('invalid_options', 'id: must be the number of an answer')
    let revoked: PersistentGrant | null = null
    await this.#change((content) => {
      revoked = content.grants.find((grant) => grant.id === id) ?? null
      return { ...content, grants: content.grants.filter((grant) => grant.id !== id) }
    })
    return revoked
  }

  async #change(make: (content: GrantFile) => GrantFile): Promise<void> {
    await using _ = await takeLock(this.#lock, { waitMs: stateFileWaitMs }).catch((cause: unknown) => {
      throw new CaissonError('state_unavailable', `cannot change ${this.file}: ${errorMessage(cause)}`, {
        cause,
      })
    })
    const content = make(this.#read())
    try {
      await replaceFile(this.file, `${JSON.stringify(content, null, 2)}\n`)
    } catch (cause) {
      throw new CaissonError('state_unavailable', `cannot write ${this.file}: ${errorMessage(cause)}`, {
        cause,
      })
    }
  }

  #read(): GrantFile {
    try {
      const { ino, mtimeNs, size } = statSync(this.file, { bigint: true })
      const version = `${ino} ${mtimeNs} ${size}`
      if (this.#known?.version === version) return this.#known.content
      const content = GrantFile.parse(parseJson(readFileSync(this.file, 'utf8')))
      this.#known = { version, content }
      return content
    } catch (cause) {
      if (errnoOf(cause) === 'ENOENT') return { nextId: 1, grants: [] }
      const isDamaged = cause instanceof z.ZodError
      throw new CaissonError(
        isDamaged ? 'state_corrupted' : 'state_unavailable',
        `cannot read the stored grants in ${this.file}: ${isDamaged ? 'its format is invalid' : errorMessage(cause)}`,
        { remedy: 'correct the file or remove it', cause },
      )
    }
  }
}
