/** Files of the workspace as an editor names them: checked to lie in it, without links that lead out, and read in bounds. */
import { readFile, realpath, stat } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { limits } from '#specs/protocol/limits.ts'
import { isPlainRelativePath } from '#specs/protocol/text.ts'
import { invalidParams } from './refusals.ts'

/** Path below the workspace, with `/`; undefined for what is elsewhere. */
export function pathInWorkspace(workspace: string, uri: string): string | undefined {
  let file: string
  try {
    file = fileURLToPath(new URL(uri))
  } catch {
    return undefined
  }
  const relative = path.relative(workspace, file).split(path.sep).join('/')
  return isPlainRelativePath(relative) ? relative : undefined
}

/**
 * The path without its links; undefined where one leads out: the VM has the link, and the editor would read its target.
 * @param file below the workspace
 */
export async function withoutLinks(workspace: string, file: string): Promise<string | undefined> {
  const root = await realpath(workspace).catch(() => undefined)
  if (root === undefined) return undefined
  const named = path.join(workspace, file)
  const real = await realpath(named).catch(() => undefined)
  // A file that is only in the editor; without its directory nothing can be there.
  const parent = real === undefined ? await realpath(path.dirname(named)).catch(() => undefined) : undefined
  const found = real ?? (parent === undefined ? named : path.join(parent, path.basename(named)))
  const below = path.relative(parent === undefined && real === undefined ? workspace : root, found)
  return isPlainRelativePath(below) ? below : undefined
}

/** Undefined for what is no file, or too large to be sent. @param file absolute, without links */
export async function readSaved(file: string): Promise<string | undefined> {
  const found = await stat(file).catch(() => undefined)
  if (found === undefined || !found.isFile() || found.size > 4 * limits.documentMaxChars) return undefined
  return await readFile(file, 'utf8').catch(() => undefined)
}

/** Whether two texts differ in no more than how their lines end, which editors give in a way of their own. */
export function isSameText(one: string, other: string): boolean {
  return plain(one) === plain(other)
}

/** The text of an editor with the line ends of the file that it is of. */
export function withLineEndsOf(text: string, saved: string): string {
  const isWindows = /\r\n/.test(saved) && !/(?<!\r)\n/.test(saved)
  return isWindows ? plain(text).replaceAll('\n', '\r\n') : text
}

function plain(text: string): string {
  return text.replaceAll('\r\n', '\n').replace(/^\ufeff/, '')
}

/** @throws {RequestError} for a directory that no session can have */
export async function checkDirectory(cwd: string): Promise<string> {
  const directory = requireAbsolute(cwd)
  const found = await stat(directory).catch(() => undefined)
  if (found?.isDirectory() === true) return directory
  const seen = found === undefined ? 'cannot be found' : 'is no directory'
  throw invalidParams(`cwd: ${JSON.stringify(directory)} ${seen}; give the directory that the agent works on`)
}

export function requireAbsolute(cwd: string): string {
  if (path.isAbsolute(cwd) && !cwd.includes('\0')) return path.resolve(cwd)
  throw invalidParams(`cwd: expected an absolute path, got ${JSON.stringify(cwd.slice(0, 200))}`)
}
