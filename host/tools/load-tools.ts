/**
 * Loads the tools of a folder: each file exports one. A file that cannot be loaded leaves only its own tool out. The files
 * run in the application's process, with all its rights.
 */
import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { CaissonError, errorMessage, requireObject } from '#specs/errors.ts'
import { plainName } from '#specs/protocol/tool-names.ts'
import { type HostToolDefinition, type HostTools, prepareHostTools } from './host-tools.ts'

export interface LoadToolsOptions {
  /** How long one file may take to load. Default 10 s. */
  readonly timeoutMs?: number
}

/** A file whose tool was left out. */
export interface LeftOutTool {
  readonly file: string
  /** What is wrong with it, in one sentence. */
  readonly reason: string
}

export interface LoadedTools {
  /** By name, for `extensions.hostTools`. */
  readonly tools: HostTools
  /** Sorted by file. Empty: every file has its tool. */
  readonly leftOut: readonly LeftOutTool[]
}

const filesMaxCount = 128
const loadTimeoutMs = 10_000
const longestMs = 2 ** 31 - 1
const reasonMaxChars = 500
const toolFile = /^[^.].*\.(?:js|mjs|ts|mts)$/
const otherFile = /\.(?:d\.m?ts|test\.m?[jt]s)$/

/**
 * Loads the tool of each `.js`, `.mjs`, `.ts` and `.mts` file directly in `folder`; tests and declarations are no tools.
 * The default export is the tool, its `name` the one that the model sees, by default the file's name.
 * @param folder a path, relative to the current directory, or a `file:` URL
 * @throws {CaissonError} `invalid_options` when the folder cannot be read, has more than 128 such files, or two files have
 * tools of the same name
 */
export async function loadTools(folder: string | URL, options: LoadToolsOptions = {}): Promise<LoadedTools> {
  const directory = readFolder(folder)
  const timeoutMs = readTimeout(options)
  const files = await listFiles(directory)
  const places = new Map<string, string>()
  const tools = new Map<string, HostToolDefinition>()
  const leftOut: LeftOutTool[] = []
  for (const file of files) {
    const read = await loadFile(file, timeoutMs)
    if ('reason' in read) {
      leftOut.push({ file, reason: read.reason.slice(0, reasonMaxChars).toWellFormed() })
      continue
    }
    const other = places.get(plainName(read.name))
    if (other !== undefined)
      throw new CaissonError(
        'invalid_options',
        `two tools are named ${read.name}, case and - aside: in ${other} and in ${file}`,
        { remedy: 'rename one of them' },
      )
    places.set(plainName(read.name), file)
    tools.set(read.name, read.tool)
  }
  // A tool may be named __proto__.
  return { tools: Object.fromEntries(tools), leftOut }
}

function readFolder(folder: unknown): string {
  if (typeof folder === 'string' && folder !== '' && !folder.includes('\0')) return path.resolve(folder)
  try {
    if (folder instanceof URL) return fileURLToPath(folder)
  } catch (cause) {
    throw new CaissonError('invalid_options', `folder: ${errorMessage(cause)}`, { cause })
  }
  throw new CaissonError('invalid_options', 'folder: must be a path or a file: URL')
}

function readTimeout(options: LoadToolsOptions): number {
  requireObject('the options', options)
  const { timeoutMs = loadTimeoutMs } = options
  if (!Number.isInteger(timeoutMs) || timeoutMs < 1 || timeoutMs > longestMs)
    throw new CaissonError('invalid_options', `timeoutMs: must be a whole number from 1 to ${longestMs}`)
  return timeoutMs
}

async function listFiles(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { withFileTypes: true }).catch((cause: unknown) => {
    throw new CaissonError(
      'invalid_options',
      `cannot read the tools in ${directory}: ${errorMessage(cause)}`,
      {
        cause,
      },
    )
  })
  const files = entries.filter(
    (entry) => !entry.isDirectory() && toolFile.test(entry.name) && !otherFile.test(entry.name),
  )
  if (files.length > filesMaxCount)
    throw new CaissonError(
      'invalid_options',
      `${directory} has ${files.length} files of tools; at most ${filesMaxCount} can be loaded`,
    )
  return files.map(({ name }) => path.join(directory, name)).toSorted()
}

type ReadFile = { readonly name: string; readonly tool: HostToolDefinition } | { readonly reason: string }

async function loadFile(file: string, timeoutMs: number): Promise<ReadFile> {
  try {
    const module = await importWithin(file, timeoutMs)
    const tool: unknown = module.default
    if (!isTool(tool))
      return {
        reason: 'it has no default export with a description, an inputSchema and the function execute',
      }
    const name: unknown = 'name' in tool ? tool.name : path.basename(file, path.extname(file))
    if (typeof name !== 'string') return { reason: 'the name of its tool is no text' }
    prepareHostTools({ [name]: tool })
    return { name, tool }
  } catch (error) {
    return { reason: describe(error) }
  }
}

async function importWithin(file: string, timeoutMs: number): Promise<Record<string, unknown>> {
  const { promise: late, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(() => reject(new Error(`it did not load within ${timeoutMs} ms`)), timeoutMs)
  try {
    return await Promise.race([import(pathToFileURL(file).href), late])
  } finally {
    clearTimeout(timer)
  }
}

function isTool(value: unknown): value is HostToolDefinition {
  return (
    typeof value === 'object' &&
    value !== null &&
    'description' in value &&
    'inputSchema' in value &&
    typeof value.inputSchema === 'object' &&
    value.inputSchema !== null &&
    'execute' in value &&
    typeof value.execute === 'function'
  )
}

function describe(error: unknown): string {
  const missing = /^Cannot find (?:package|module) '([^']+)'/.exec(errorMessage(error))?.[1]
  const isMissing = error instanceof Error && 'code' in error && error.code === 'ERR_MODULE_NOT_FOUND'
  if (isMissing && missing !== undefined) return `it needs ${missing}, which is not installed`
  return errorMessage(error)
}
