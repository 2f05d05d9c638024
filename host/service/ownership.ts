/**
 * Whose a run is: of the key or subject that started it, or of the owner of the service. The journal of a run has their
 * name and ID among the metadata of the service, which no request can set. For others a run is not there.
 */

import type { Scope } from '#specs/service/route.ts'
import type { RunRequest } from '#specs/service/start-resources.ts'
import { type ApiKeyQuotas, type ApiKeys, CaissonError, type Host, type RunSummary } from '../index.ts'
import { type Caller, owner, seesAll } from './callers.ts'
import { Refusal } from './problems.ts'

/** Metadata of the service's runs; a caller can neither set nor see it. */
export const ownPrefix = 'caisson.'
/** Name and ID of the key or subject that started the run. Absent: the owner of the service. */
export const ownerField = `${ownPrefix}owner`

/** Metadata of a run that the caller starts. */
export function ownerMetadata({ account, name }: Caller): Readonly<Record<string, string>> {
  return account === undefined ? {} : { [ownerField]: name }
}

/** Metadata that the runs have which the caller sees. Those of the owner have none, so {@link isVisible} decides. */
export function visibleMetadata(caller: Caller): Readonly<Record<string, string>> {
  return seesAll(caller) ? {} : ownerMetadata(caller)
}

export function isVisible(caller: Caller, { metadata }: Pick<RunSummary, 'metadata'>): boolean {
  return seesAll(caller) || metadata?.[ownerField] === ownerMetadata(caller)[ownerField]
}

/** What its caller gave a run as metadata; undefined: nothing. */
export function givenMetadata({
  metadata = {},
}: Pick<RunSummary, 'metadata'>): Record<string, string> | undefined {
  const given = Object.entries(metadata).filter(([name]) => !name.startsWith(ownPrefix))
  return given.length === 0 ? undefined : Object.fromEntries(given)
}

/** Where the quotas of owners are found. */
export interface OwnerAccounts {
  readonly keys: Pick<ApiKeys, 'list'>
  /** Of each subject of a JWT. Absent: none. */
  readonly subjectQuotas?: ApiKeyQuotas
}

export class Ownership {
  readonly #runs: Host['runs']
  readonly #accounts: OwnerAccounts

  constructor(runs: Host['runs'], accounts: OwnerAccounts) {
    this.#runs = runs
    this.#accounts = accounts
  }

  /** Whose quotas a run counts for. One whose key is no longer there has none. */
  async ownerOf({ metadata }: Pick<RunSummary, 'metadata'>): Promise<Caller> {
    const name = metadata?.[ownerField]
    if (name === undefined) return owner
    const { keys, subjectQuotas = {} } = this.#accounts
    const [, id = ''] = /\(([0-9a-f]{12,32})\)$/.exec(name) ?? []
    const isSubject = name.startsWith('jwt ')
    const key = isSubject ? undefined : (await keys.list()).find((other) => other.id === id)
    const account = isSubject
      ? { id: `jwt-${id}`, kind: 'subject' as const, quotas: subjectQuotas }
      : { id, kind: 'key' as const, quotas: key?.quotas ?? {} }
    return { name, scopes: new Set(), account: { ...account, isValid: async () => true } }
  }

  /** @throws {CaissonError} `run_not_found` for a run of somebody else, as for one that is not there */
  async require(caller: Caller, ...runIds: readonly string[]): Promise<void> {
    if (seesAll(caller)) return
    // What else it may is checked with the route.
    if (caller.link !== undefined && runIds.every((id) => id === caller.link?.runId)) return
    for (const id of runIds) {
      if (!(await this.#runs.has(id)) || !isVisible(caller, await this.#runs.summary(id)))
        throw new CaissonError('run_not_found', `no run has the ID "${id}"`)
    }
  }

  /** Whether the caller sees a run of these, by its id. */
  async visible(caller: Caller, runIds: Iterable<string | null>): Promise<(runId: string | null) => boolean> {
    if (seesAll(caller)) return () => true
    const runs = await this.#runs.those([...runIds].filter((id) => id !== null))
    const ids = new Set(runs.filter((run) => isVisible(caller, run)).map(({ id }) => id))
    return (runId) => runId !== null && ids.has(runId)
  }
}

/** @throws {Refusal} 403 */
export function requireScope(caller: Caller, scope: Scope, why = ''): void {
  if (caller.scopes.has(scope)) return
  throw new Refusal(403, 'forbidden', `${caller.name} lacks the scope ${scope}${why}`, {
    remedy:
      caller.account?.kind === 'subject'
        ? 'ask the issuer for a token with it'
        : `use a key with it: caisson serve keys create NAME --scope ${scope}`,
  })
}

/** A request to start a run that allows in advance what people would be asked, or copies what stays out. @throws {Refusal} 403 */
export function requireScopesOf(
  caller: Caller,
  { approvals, egress, files }: Pick<RunRequest, 'approvals' | 'egress' | 'files'>,
): void {
  const allows =
    approvals?.mode === 'all' ||
    approvals?.rules?.some(({ effect }) => effect === 'allow') === true ||
    egress?.rules?.some(({ effect }) => effect === 'allow') === true
  if (allows) requireScope(caller, 'approve', ', which approvals.mode "all" and rules that allow need')
  // Secret files stay out of the VM because nobody named them; its caller could read them there.
  if (files?.include?.length || files?.acceptIgnoreRules === true)
    requireScope(caller, 'approve', ', which files.include and files.acceptIgnoreRules need')
}
