/**
 * Loads the workflows that steps of a workflow run, and theirs. Each is a file beside the first one, by its name or by agent
 * and version. Refuses what is elsewhere, leads back to itself, or is not what its digest says.
 */
import { lstat } from 'node:fs/promises'
import path from 'node:path'
import type { WorkflowStep, WorkspaceData } from './workspace-data.ts'
import { loadFile, WorkflowError, WorkspaceManager } from './workspace-manager.ts'

/** Workflows by the name of their file. */
export type LoadedParts = ReadonlyMap<string, WorkspaceData>

const partsMaxCount = 16
const depthMax = 4

/** @param folder that of the first file; null: it is of no file @throws {WorkflowError} */
export async function loadParts(data: WorkspaceData, folder: string | null): Promise<LoadedParts> {
  const loaded = new Map<string, { readonly workflow: WorkspaceData; readonly sha256: string }>()
  const follow = async (from: WorkspaceData, way: readonly string[]): Promise<void> => {
    for (const step of from.steps) {
      const { workflow: named } = step.details
      if (named === undefined) continue
      const refuse = (what: string) => new WorkflowError(describe(from, step, what), [])
      if (way.includes(named.from)) throw refuse(`"${named.from}" leads back to itself`)
      if (way.length >= depthMax) throw refuse(`more than ${depthMax} workflows are inside one another`)
      if (folder === null) throw refuse('a workflow that is of no file has no files beside it')
      if (!isPlainName(named.from))
        throw refuse('expected the name of a file beside this one, or AGENT@VERSION of one')
      const known = loaded.get(named.from) ?? (await loadFile(await findFile(folder, named.from, refuse)))
      if (named.sha256 !== undefined && named.sha256 !== known.sha256)
        throw refuse(`"${named.from}" has the SHA-256 ${known.sha256}, expected ${named.sha256}`)
      const isNew = !loaded.has(named.from)
      loaded.set(named.from, known)
      if (loaded.size > partsMaxCount) throw refuse(`more than ${partsMaxCount} workflows in all`)
      if (isNew) await follow(known.workflow, [...way, named.from])
      else requireNoCircle(known.workflow, [...way, named.from])
    }
  }
  const requireNoCircle = (from: WorkspaceData, way: readonly string[]): void => {
    for (const step of from.steps) {
      const name = step.details.workflow?.from
      const next = name === undefined ? undefined : loaded.get(name)
      if (name === undefined || next === undefined) continue
      if (way.includes(name) || way.length >= depthMax)
        throw new WorkflowError(describe(from, step, `"${name}" leads back to itself, or too deep`), [])
      requireNoCircle(next.workflow, [...way, name])
    }
  }
  await follow(data, [])
  return new Map([...loaded].map(([name, { workflow }]) => [name, workflow]))
}

/** A file of this name; else the only workflow of the folder with this agent and version. */
async function findFile(
  folder: string,
  name: string,
  refuse: (what: string) => WorkflowError,
): Promise<string> {
  const file = path.join(folder, name)
  if (!name.includes('@') || (await lstat(file).catch(() => undefined)) !== undefined) return file
  const listed = await new WorkspaceManager().list(folder)
  const found = listed.filter(
    ({ workflow }) => workflow !== null && `${workflow.agent}@${workflow.version}` === name,
  )
  const [first, second] = found
  if (first === undefined) throw refuse(`the folder has neither a file nor a workflow "${name}"`)
  if (second !== undefined)
    throw refuse(`"${name}" is in ${path.basename(first.file)} and in ${path.basename(second.file)}`)
  return first.file
}

function describe({ agent, version }: WorkspaceData, { id }: WorkflowStep, what: string): string {
  return `the workflow ${agent}@${version} cannot run: step "${id}" workflow.from: ${what}`
}

function isPlainName(name: string): boolean {
  return path.basename(name) === name && !name.includes('\\') && !name.includes('\0') && !/^\.*$/.test(name)
}
