/**
 * Whose a run is: of the key or subject that started it, or of the owner of the service. The journal of a run has their
 * name and ID among the metadata of the service, which no request can set. For others a run is not there.
 */

import type { RunRequest } from '#specs/service/resources.ts'
import type { Scope } from '#specs/service/route.ts'
import { CaissonError, type Host } from '../index.ts'
import { type Caller, seesAll } from './callers.ts'
import { Refusal } from './problems.ts'

/** Metadata of the service's runs; a caller can neither set nor see it. */
export const ownPrefix = 'caisson.'
/** Name and ID of the key or subject that started the run. Absent: the owner of the service. */
export const ownerField = `${ownPrefix}owner`

/** Metadata of a run that the caller starts. */
export function ownerMetadata({ account, name }: Caller): Readonly<Record<string, string>> {
  return account === undefined ? {} : { [ownerField]: name }
}

/** Metadata that the runs have which the caller sees. */
export function visibleMetadata(caller: Caller): Readonly<Record<string, string>> {
  return seesAll(caller) ? {} : { [ownerField]: caller.name }
}

export class Ownership {
  readonly #runs: Host['runs']

  constructor(runs: Host['runs']) {
    this.#runs = runs
  }

  /** @throws {CaissonError} `run_not_found` for a run of somebody else, as for one that is not there */
  async require(caller: Caller, ...runIds: readonly string[]): Promise<void> {
    if (seesAll(caller)) return
    const there = new Set(await this.#runs.ids())
    for (const id of runIds) {
      const { metadata } = there.has(id) ? await this.#runs.summary(id) : {}
      if (metadata?.[ownerField] !== caller.name)
        throw new CaissonError('run_not_found', `no run has the ID "${id}"`)
    }
  }

  /** Whether the caller sees a run, by its id. */
  async visible(caller: Caller): Promise<(runId: string | null) => boolean> {
    if (seesAll(caller)) return () => true
    const runs = await this.#runs.select({ metadata: { [ownerField]: caller.name } })
    const ids = new Set(runs.map(({ id }) => id))
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

/** A request to start a run that allows in advance what people would be asked. @throws {Refusal} 403 */
export function requireScopesOf(caller: Caller, { approvals, egress }: RunRequest): void {
  const allows =
    approvals?.mode === 'all' ||
    approvals?.rules?.some(({ effect }) => effect === 'allow') === true ||
    egress?.rules?.some(({ effect }) => effect === 'allow') === true
  if (allows) requireScope(caller, 'approve', ', which approvals.mode "all" and rules that allow need')
}
