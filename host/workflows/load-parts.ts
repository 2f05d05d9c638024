/**
 * Loads what a workflow names of others: workflows that its steps run, and steps and functions that it takes. They are beside
 * it, by file name or by agent and version, or in a store. Within a run, one name is one content. Refuses what is elsewhere,
 * leads back to itself, or is not what its digest says.
 */
import { lstat } from 'node:fs/promises'
import path from 'node:path'
import type { TakenFunction, WorkspaceData } from '#specs/node/workflow/workspace-data.ts'
import { parseReference } from '#specs/protocol/workflow-keys.ts'
import { FolderWorkflowStore } from './folder-store.ts'
import { referenceOf, refusalFor, takeParts } from './take-parts.ts'
import { digestOf, type LoadedFile, loadFile, parseWorkflow, pathOf, WorkflowError } from './workflow-file.ts'
import { readStored, type WorkflowStore } from './workflow-store.ts'

/** Workflows by the name under which steps run them. */
export type LoadedParts = ReadonlyMap<string, WorkspaceData>

/** A file that a workflow uses. */
interface UsedFile {
  /** As the workflow names it. */
  readonly from: string
  readonly sha256: string
}

/** A workflow with all that it names. */
export interface WholeWorkflow {
  /** With the steps and functions that it takes. */
  readonly data: WorkspaceData
  readonly parts: LoadedParts
  readonly uses: readonly UsedFile[]
}

/** Where a workflow finds others. */
export interface Surroundings {
  /** That of its file; null: it is of no file. */
  readonly folder: string | null
  /** Absent: none. */
  readonly store?: WorkflowStore | undefined
}

/** A workflow as it was found, before what it names is loaded. */
export interface FoundWorkflow extends Pick<Surroundings, 'folder'> {
  readonly data: WorkspaceData
  /** For people. */
  readonly origin: string
}

const filesMaxCount = 16
const depthMax = 4

/**
 * @param from a path, a `file:` URL, or `AGENT@VERSION` of the store where no file has this name
 * @throws {WorkflowError} @throws {CaissonError} `state_unavailable` when the store fails
 */
export async function findWorkflow(from: string | URL, store?: WorkflowStore): Promise<FoundWorkflow> {
  const file = pathOf(from)
  const isNamed = store !== undefined && typeof from === 'string' && isStoreReference(from)
  if (isNamed && (await lstat(file).catch(() => undefined)) === undefined)
    return { data: (await findStored(from, store)).workflow, origin: `${from} of the store`, folder: null }
  const { workflow } = await loadFile(file)
  return { data: workflow, origin: String(from), folder: path.dirname(path.resolve(file)) }
}

/** @param name `AGENT@VERSION` @throws {WorkflowError} as {@link findWorkflow} */
export async function findStored(name: string, store: WorkflowStore): Promise<LoadedFile> {
  const reference = requireReference(name)
  const found = await readStored(store, reference)
  if (found === null)
    throw new WorkflowError(
      `the store has no workflow "${name}"; caisson workflow list shows what it has`,
      [],
    )
  return found
}

/** @throws {WorkflowError} unless it is `AGENT@VERSION` */
export function requireReference(name: string): { readonly agent: string; readonly version: string } {
  const reference = isStoreReference(name) ? parseReference(name) : null
  if (reference === null)
    throw new WorkflowError(
      `the name of a stored workflow must be AGENT@VERSION, got ${JSON.stringify(String(name).slice(0, 100))}`,
      [],
    )
  return reference
}

/** Whether a text is `AGENT@VERSION`. */
export function isStoreReference(text: string): boolean {
  return typeof text === 'string' && parseReference(text)?.kind === 'list'
}

/** @throws {WorkflowError} @throws {CaissonError} `state_unavailable` when the store fails */
export async function loadWhole(data: WorkspaceData, around: Surroundings): Promise<WholeWorkflow> {
  const loader = new Loader(around)
  const { whole } = await loader.complete({ data, isOfFolder: around.folder !== null }, [])
  const files = [...loader.files]
  return {
    data: whole,
    parts: new Map(files.map(([name, file]) => [name, file.whole])),
    uses: files.map(([from, { sha256 }]) => ({ from, sha256 })),
  }
}

interface Place {
  readonly data: WorkspaceData
  /** Whether it may name files beside it. */
  readonly isOfFolder: boolean
}

interface Completed {
  readonly whole: WorkspaceData
  /** Workflows that are inside one another below it. */
  readonly depth: number
}

interface KnownFile extends Completed {
  readonly sha256: string
}

/** What a workflow names of another. */
interface Reference {
  /** Of the other one: `AGENT@VERSION`, or a file. */
  readonly name: string
  readonly sha256: string | undefined
  readonly refuse: (what: string) => WorkflowError
}

/** Whether a workflow runs another one or takes parts of it. @param name `AGENT@VERSION` */
export function usesWorkflow(data: WorkspaceData, name: string): boolean {
  return referencesOf(data).some((reference) => reference.name === name)
}

class Loader {
  /** Files that are complete, by name. */
  readonly files = new Map<string, KnownFile>()
  readonly #around: Surroundings
  #count = 0

  constructor(around: Surroundings) {
    this.#around = around
  }

  /** @param way names that lead here */
  async complete(of: Place, way: readonly string[]): Promise<Completed> {
    let depth = 0
    for (const reference of referencesOf(of.data)) {
      const { name, sha256, refuse } = reference
      if (!of.isOfFolder && !isStoreReference(name))
        throw refuse(
          `"${name}" is not AGENT@VERSION, and a workflow that is not of a folder has no files beside it`,
        )
      if (way.includes(name)) throw refuse(`"${name}" leads back to itself`)
      const file = this.files.get(name) ?? (await this.#load(reference, of, way))
      requireDigest(file, { name, sha256, refuse })
      depth = Math.max(depth, file.depth + 1)
      if (depth > depthMax) throw refuse(`more than ${depthMax} workflows are inside one another`)
    }
    return { whole: takeParts(of.data, (name) => this.files.get(name)?.whole), depth }
  }

  async #load(reference: Reference, of: Place, way: readonly string[]): Promise<KnownFile> {
    const { name, refuse } = reference
    this.#count += 1
    if (this.#count > filesMaxCount) throw refuse(`more than ${filesMaxCount} workflows in all`)
    const { sha256, ...found } = await this.#find(reference, of)
    requireDigest({ sha256 }, reference)
    const file = { ...(await this.complete(found, [...way, name])), sha256 }
    this.files.set(name, file)
    return file
  }

  /** A file of this name; else the only workflow of the folder with this agent and version; else that of the store. */
  async #find(
    { name, refuse }: Reference,
    { isOfFolder }: Place,
  ): Promise<Place & Pick<LoadedFile, 'sha256'>> {
    const { folder, store } = this.#around
    const inFolder = ({ workflow, sha256 }: LoadedFile) => ({ data: workflow, sha256, isOfFolder: true })
    if (isOfFolder && folder !== null && isPlainName(name)) {
      const file = path.join(folder, name)
      if (!name.includes('@') || (await lstat(file).catch(() => undefined)) !== undefined)
        return inFolder(await loadFile(file))
    }
    const reference = isStoreReference(name) ? parseReference(name) : null
    if (reference === null)
      throw refuse('expected the name of a file beside this one, or AGENT@VERSION of one')
    if (folder !== null) {
      const text = await new FolderWorkflowStore(folder).get(reference.agent, reference.version)
      if (text !== null)
        return inFolder({ text, workflow: parseWorkflow(text, name), sha256: digestOf(text) })
    }
    const stored = store === undefined ? null : await readStored(store, reference)
    if (stored !== null) return { data: stored.workflow, sha256: stored.sha256, isOfFolder: false }
    const seen = [
      ...(folder === null ? [] : ['the folder has neither a file nor a workflow']),
      ...(store === undefined ? [] : ['the store has none']),
    ]
    throw refuse(
      `there is no workflow "${name}": ${seen.join(', ') || 'there is neither a folder nor a store'}`,
    )
  }
}

function referencesOf(data: WorkspaceData): Reference[] {
  const taken = ({ from, sha256 }: Pick<TakenFunction, 'from' | 'sha256'>, what: string): Reference => ({
    name: referenceOf(from).file,
    sha256,
    refuse: refusalFor(data, `${what} from`),
  })
  return [
    ...data.steps.flatMap(({ id, details: { workflow, from, sha256 } }): Reference[] => [
      ...(workflow === undefined
        ? []
        : [
            {
              name: workflow.from,
              sha256: workflow.sha256,
              refuse: refusalFor(data, `step "${id}" workflow.from`),
            },
          ]),
      ...(from === undefined ? [] : [taken({ from, sha256 }, `step "${id}"`)]),
    ]),
    ...(data.taken ?? []).map((one) => taken(one, `function "${one.name}"`)),
  ]
}

function requireDigest(file: Pick<KnownFile, 'sha256'>, { name, sha256, refuse }: Reference): void {
  if (sha256 !== undefined && sha256 !== file.sha256)
    throw refuse(`"${name}" has the SHA-256 ${file.sha256}, expected ${sha256}`)
}

function isPlainName(name: string): boolean {
  return path.basename(name) === name && !name.includes('\\') && !name.includes('\0') && !/^\.*$/.test(name)
}
