/**
 * Where published workflows are, by name and version. A store may be the application's: what it returns is bounded and
 * checked here, and one that fails or does not answer ends with an error.
 */
import * as z from 'zod'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { describeIssues, plainMessagesWithoutValues } from '#specs/protocol/issue-text.ts'
import { Sha256 } from '#specs/protocol/text.ts'
import { isStoreName } from '#specs/protocol/workflow-keys.ts'
import { digestOf, fileMaxBytes, type LoadedFile, parseWorkflow, WorkflowError } from './workflow-file.ts'

const StoreName = z.string().refine(isStoreName, 'expected an agent or version that a store may have')

/** A published workflow. */
export interface StoredWorkflow {
  /** The agent of its file. */
  readonly name: string
  readonly version: string
  /** SHA-256 of its text in UTF-8, in hex. */
  readonly sha256: string
}

const StoredWorkflows = z.array(z.object({ name: StoreName, version: StoreName, sha256: Sha256 }))

/** Published workflows. What has a name and a version never changes. */
export interface WorkflowStore {
  /** The text of a workflow file; null where the store does not have it. */
  get(name: string, version: string): Promise<string | null>
  /** At most 10,000 workflows. */
  list(): Promise<readonly StoredWorkflow[]>
  /** Keeps a workflow. Keeps what is there where the store has another one of this name and version. */
  put(workflow: StoredWorkflow & { readonly text: string }): Promise<void>
  /** Removes a workflow, also a damaged one. Absent: the store removes none. */
  remove?(name: string, version: string): Promise<void>
}

/** Workflows that a store may have. */
export const storeMaxCount = 10_000
/** Time to wait for a store's answer. */
export const storeTimeoutMs = 10_000

export function isStore(value: unknown): value is WorkflowStore {
  return (
    typeof value === 'object' &&
    value !== null &&
    ['get', 'list', 'put'].every((name) => typeof Reflect.get(value, name) === 'function')
  )
}

export const storeExpected = 'expected a store of workflows: an object with the functions get, list and put'

/**
 * @returns null where the store does not have it
 * @throws {WorkflowError} for what is no such workflow @throws {CaissonError} `state_unavailable` when the store fails
 */
export async function readStored(
  store: WorkflowStore,
  { agent, version }: { readonly agent: string; readonly version: string },
): Promise<LoadedFile | null> {
  const text: unknown = await ask('get', () => store.get(agent, version))
  if (text === null || text === undefined) return null
  const name = `${agent}@${version} of the store`
  if (typeof text !== 'string' || !text.isWellFormed()) throw new WorkflowError(`${name} is not text`, [])
  if (Buffer.byteLength(text) > fileMaxBytes)
    throw new WorkflowError(`${name} is longer than ${fileMaxBytes} bytes`, [])
  const workflow = parseWorkflow(text, name)
  if (workflow.agent !== agent || workflow.version !== version)
    throw new WorkflowError(`${name} is the workflow ${workflow.agent}@${workflow.version}`, [])
  return { text, workflow, sha256: digestOf(text) }
}

/** By name and version. @throws {CaissonError} `state_unavailable` */
export async function listStored(store: WorkflowStore): Promise<StoredWorkflow[]> {
  const found: unknown = await ask('list', () => store.list())
  const read = StoredWorkflows.max(storeMaxCount).safeParse(found, plainMessagesWithoutValues)
  if (!read.success)
    throw unavailable(
      'list',
      `it returned no list of workflows: ${describeIssues(read.error, { root: 'the list' })}`,
    )
  return read.data.toSorted((a, b) => compare(a.name, b.name) || compare(a.version, b.version))
}

/** @throws {WorkflowError} where the version has other content @throws {CaissonError} `state_unavailable` */
export async function putStored(
  store: WorkflowStore,
  { text, workflow: { agent, version }, sha256 }: LoadedFile,
): Promise<StoredWorkflow> {
  const name = `${agent}@${version}`
  if (!isStoreName(agent) || !isStoreName(version))
    throw new WorkflowError(
      `${name} cannot be published: its agent or version has / or \\, or dots alone; give it another name`,
      [],
    )
  const stored = { name: agent, version, sha256 }
  const requireSame = (known: LoadedFile | null): boolean => {
    if (known !== null && known.sha256 !== sha256)
      throw new WorkflowError(
        `${name} is published with other content (SHA-256 ${known.sha256}); publish this under a new version`,
        [],
      )
    return known !== null
  }
  if (requireSame(await readStored(store, { agent, version }))) return stored
  await ask('put', () => store.put({ ...stored, text }))
  // Another publisher may have been faster.
  if (!requireSame(await readStored(store, { agent, version })))
    throw unavailable('put', `it does not have ${name} afterwards`)
  return stored
}

/**
 * Also removes a damaged one. Runs that use it have their own copy.
 * @param isUsedBy whether a workflow names the one to remove; such a workflow keeps it
 * @throws {WorkflowError} where it is not there or used @throws {CaissonError} `state_unavailable`, `invalid_options`
 */
export async function removeStored(
  store: WorkflowStore,
  { agent, version }: { readonly agent: string; readonly version: string },
  isUsedBy: (other: LoadedFile['workflow']) => boolean,
): Promise<void> {
  const name = `${agent}@${version}`
  if (store.remove === undefined)
    throw new CaissonError('invalid_options', 'this store of workflows removes none', {
      remedy: 'add the function remove to it',
    })
  const all = await listStored(store)
  const isIt = (one: StoredWorkflow) => one.name === agent && one.version === version
  if (!all.some(isIt))
    throw new WorkflowError(
      `the store has no workflow "${name}"; caisson workflow list shows what it has`,
      [],
    )
  for (const other of all) {
    if (isIt(other)) continue
    // A damaged one uses nothing.
    const read = await readStored(store, { agent: other.name, version: other.version }).catch(() => null)
    if (read !== null && isUsedBy(read.workflow))
      throw new WorkflowError(
        `${other.name}@${other.version} of the store uses ${name}; remove that first`,
        [],
      )
  }
  await ask('remove', async () => await store.remove?.(agent, version))
}

async function ask<T>(what: string, call: () => Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  try {
    return await Promise.race([
      (async () => await call())(),
      new Promise<never>((_, reject) => {
        timer = setTimeout(
          () => reject(unavailable(what, `no answer within ${storeTimeoutMs / 1_000} s`)),
          storeTimeoutMs,
        )
      }),
    ])
  } catch (error) {
    throw error instanceof CaissonError ? error : unavailable(what, errorMessage(error), error)
  } finally {
    clearTimeout(timer)
  }
}

function unavailable(what: string, why: string, cause?: unknown): CaissonError {
  return new CaissonError('state_unavailable', `the store of workflows failed (${what}): ${why}`, {
    ...(cause === undefined ? {} : { cause }),
    remedy: 'correct the store, or start the workflow without it',
  })
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}
