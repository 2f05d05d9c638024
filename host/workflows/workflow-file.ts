/** Reads workflow files with bounds, alone or those of a folder, and checks each whole. */
import { createHash } from 'node:crypto'
import { constants } from 'node:fs'
import { open, readdir } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { CaissonError } from '#specs/errors.ts'
import { reasonOf } from '#specs/node/file-error.ts'
import type { WorkspaceData } from '#specs/node/workflow/workspace-data.ts'
import { readBounded } from '../files/regular-file.ts'
import { readWorkspace, type WorkflowProblem } from './read-workspace.ts'

/** A workflow file that cannot run; `problems` has every reason, in the order of the file. */
export class WorkflowError extends CaissonError {
  override readonly name: string = 'WorkflowError'
  readonly problems: readonly WorkflowProblem[]
  /** The file, or the workflow of the store, that has the problems: maybe one that the workflow names. Absent: none. */
  readonly source: string | undefined

  constructor(
    message: string,
    problems: readonly WorkflowProblem[],
    { cause, source }: { readonly cause?: unknown; readonly source?: string } = {},
  ) {
    super('invalid_workflow', message, cause === undefined ? {} : { cause })
    this.problems = problems
    this.source = source
  }
}

/** A workflow file of a folder. */
export interface ListedWorkflow {
  /** Absolute path. */
  readonly file: string
  /** Null where it has problems. */
  readonly workflow: WorkspaceData | null
  readonly problems: readonly WorkflowProblem[]
}

/** A workflow as its text says it. */
export interface LoadedFile {
  readonly text: string
  readonly workflow: WorkspaceData
  /** Of the bytes of the text. */
  readonly sha256: string
}

/** In UTF-8, up to four bytes for each character that a file may have. */
export const fileMaxBytes = 2 * 1024 * 1024
const listMaxCount = 1_000
const listed = /\.workflow\.(json|ya?ml)$/i
const shownProblems = 3

/** @param name of the text, for errors @throws {WorkflowError} */
export function parseWorkflow(text: string, name: string): WorkspaceData {
  if (typeof text !== 'string') throw new WorkflowError(`${name}: must be text`, [])
  const read = readWorkspace(text)
  if (read.ok) return read.value
  const shown = read.error.slice(0, shownProblems).map(describeProblem)
  const more = read.error.length - shown.length
  throw new WorkflowError(
    `${name} cannot run: ${shown.join('; ')}${more > 0 ? `; and ${more} more` : ''}`,
    read.error,
    { source: name },
  )
}

/** `LINE:COLUMN: "KEY" PATH: MESSAGE`. May contain text of the file. */
export function describeProblem({ key, path: below, message, line, column }: WorkflowProblem): string {
  const place = [...(key === '' ? [] : [JSON.stringify(key)]), ...(below === '' ? [] : [below])].join(' ')
  return `${line}:${column}: ${place === '' ? '' : `${place}: `}${message}`
}

/** @param file a path, relative to the current directory, or a `file:` URL @throws {WorkflowError} */
export async function loadFile(file: string | URL): Promise<LoadedFile> {
  const name = pathOf(file)
  const bytes = await readBytes(name)
  const text = toText(bytes, name)
  return { text, workflow: parseWorkflow(text, name), sha256: digestOf(bytes) }
}

/** The SHA-256 of a workflow's text, by which others pin it. */
export function digestOf(text: string | Buffer): string {
  return createHash('sha256').update(text).digest('hex')
}

/** The workflows of a folder, by file name. @throws {WorkflowError} when the folder cannot be read */
export async function listFolder(folder: string | URL): Promise<ListedWorkflow[]> {
  const directory = pathOf(folder)
  const entries = await readdir(directory).catch((cause: unknown) => {
    throw new WorkflowError(`cannot read the folder ${directory}: ${reasonOf(cause)}`, [], { cause })
  })
  const files = entries.filter((entry) => listed.test(entry)).toSorted()
  if (files.length > listMaxCount)
    throw new WorkflowError(
      `${directory} has ${files.length} workflows; at most ${listMaxCount} can be listed`,
      [],
    )
  const workflows: ListedWorkflow[] = []
  for (const entry of files) workflows.push(await readListed(path.resolve(directory, entry)))
  return workflows
}

async function readListed(file: string): Promise<ListedWorkflow> {
  try {
    return { file, workflow: (await loadFile(file)).workflow, problems: [] }
  } catch (error) {
    if (!(error instanceof WorkflowError)) throw error
    const whole = { key: '', path: '', message: error.message, line: 1, column: 1 }
    return { file, workflow: null, problems: error.problems.length > 0 ? error.problems : [whole] }
  }
}

function toText(bytes: Buffer, file: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch (cause) {
    throw new WorkflowError(`${file} is not UTF-8 text`, [], { cause })
  }
}

/** @throws {WorkflowError} */
export function pathOf(file: unknown): string {
  if (typeof file === 'string' && file !== '' && !file.includes('\0')) return file
  try {
    if (file instanceof URL) return fileURLToPath(file)
  } catch (cause) {
    throw new WorkflowError('the address of a workflow must be a path or a file: URL', [], { cause })
  }
  throw new WorkflowError('the address of a workflow must be a path or a file: URL', [])
}

async function readBytes(file: string): Promise<Buffer> {
  try {
    // Without O_NONBLOCK, opening a FIFO without a writer would block before it could be refused.
    await using handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK)
    const stats = await handle.stat()
    if (!stats.isFile()) throw new WorkflowError(`${file} is not a file`, [])
    const bytes = await readBounded(handle, fileMaxBytes)
    if (bytes === null) throw new WorkflowError(`${file} is longer than ${fileMaxBytes} bytes`, [])
    return bytes
  } catch (cause) {
    if (cause instanceof WorkflowError) throw cause
    throw new WorkflowError(`cannot read the workflow ${file}: ${reasonOf(cause)}`, [], { cause })
  }
}
