/**
 * Keys that callers choose for their runs. A key counts for one caller alone; the journal of its run has both, so that a
 * restart forgets none. An `Idempotency-Key` is kept as a digest, since it may be any text, and names no run.
 */
import { createHash } from 'node:crypto'
import { RunId } from '#specs/protocol/text.ts'
import { RunKey } from '#specs/service/run-resources.ts'
import { CaissonError, type Host, type RunSummary } from '../index.ts'
import type { Caller } from './callers.ts'
import { ownerMetadata, ownPrefix } from './ownership.ts'

const keyField = `${ownPrefix}idempotency-key`
const bodyField = `${ownPrefix}idempotency-body`
/** Runs of a page of the list. */
const pageSize = 1_000
/** Where an account has its ID; no account has this one. */
const ownerId = 'owner'

/** What tells a request to start a run from others of its caller. */
export interface StartKey {
  /** The header `Idempotency-Key`, or the path, by which the caller finds the run again. */
  readonly from: 'header' | 'path'
  readonly text: string
}

/** Of the header; undefined: the request has none. */
export function headerKey({
  idempotencyKey: text,
}: {
  readonly idempotencyKey: string | undefined
}): StartKey | undefined {
  return text === undefined ? undefined : { from: 'header', text }
}

/** The key of a caller as journals have it: the same for two requests if they mean one run. */
export function storedKey({ account }: Caller, { from, text }: StartKey): string {
  if (from === 'path') return `${account?.id ?? ownerId} ${text}`
  return digestOf(account === undefined ? text : `${account.id} ${text}`)
}

/** Metadata of a run that a request with a key starts. */
export function keyMetadata(stored: string, bodyDigest: string): Readonly<Record<string, string>> {
  return { [keyField]: stored, [bodyField]: bodyDigest }
}

/** Whether the run was started with the same body. */
export function hasBody({ metadata }: RunSummary, bodyDigest: string): boolean {
  return metadata?.[bodyField] === bodyDigest
}

/** The key by which its caller finds the run; undefined: it has none. */
export function keyOf({
  metadata,
  forkedFrom,
}: Pick<RunSummary, 'metadata' | 'forkedFrom'>): string | undefined {
  // A fork has the metadata of its run.
  if (forkedFrom !== undefined) return undefined
  const [, key] = metadata?.[keyField]?.split(' ') ?? []
  return RunKey.safeParse(key).success ? key : undefined
}

/** The run that the caller started with a key; undefined: there is none. */
export async function findByKey(
  runs: Host['runs'],
  caller: Caller,
  stored: string,
): Promise<RunSummary | undefined> {
  const filter = { metadata: { [keyField]: stored, ...ownerMetadata(caller) } }
  let oldest: RunSummary | undefined
  for (let cursor: string | undefined; ; ) {
    const page = await runs.page({ filter, limit: pageSize, ...(cursor === undefined ? {} : { cursor }) })
    // Forks, and later a merge of them, have the metadata of the run that was started.
    oldest = page.runs.findLast(({ forkedFrom }) => forkedFrom === undefined) ?? oldest
    cursor = page.nextCursor
    if (cursor === undefined) return oldest
  }
}

/** The id of a run that a path names by id or by the caller's key. @throws {CaissonError} `run_not_found` */
export async function runIdOf(runs: Host['runs'], caller: Caller, name: string): Promise<string> {
  if (RunId.safeParse(name).success) return name
  const found = await findByKey(runs, caller, storedKey(caller, { from: 'path', text: name }))
  if (found !== undefined) return found.id
  throw new CaissonError('run_not_found', `no run of ${caller.name} has the key ${JSON.stringify(name)}`, {
    remedy: 'start it: PUT /v1/runs/KEY; a run that another caller started has its ID alone',
  })
}

export function digestOf(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}
