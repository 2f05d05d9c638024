/** Counts and removes whole directories by descriptor, so that nothing outside of them is affected. */
import { lstatSync, rmdirSync, unlinkSync } from 'node:fs'
import type { Directory } from '#specs/node/directory.ts'

/** Maximum directory depth; each level holds a descriptor. */
export const removeMaxDepth = 256

export interface TreeCount {
  files: number
  directories: number
  /** Total size of the files. */
  bytes: number
}

/** Thrown when a tree is deeper than {@link removeMaxDepth}. */
export class TooDeepError extends Error {
  override readonly name = 'TooDeepError'
}

/**
 * Counts the entries of `directory`, without itself; unreadable directories count without content.
 * @param visit called for each path below it until it returns false
 */
export function countTree(directory: Directory, visit?: (path: string) => void): TreeCount {
  const count: TreeCount = { files: 0, directories: 0, bytes: 0 }
  countInto(directory, count, '', 0, visit)
  return count
}

/** Removes everything in `directory` but not itself. Throws the system's error, with part of the work done. */
export function emptyDirectory(directory: Directory, signal?: AbortSignal): TreeCount {
  const count: TreeCount = { files: 0, directories: 0, bytes: 0 }
  emptyInto(directory, count, 0, signal)
  return count
}

function countInto(
  directory: Directory,
  count: TreeCount,
  path: string,
  depth: number,
  visit: ((path: string) => void) | undefined,
): void {
  if (depth > removeMaxDepth) throw new TooDeepError('nested too deep')
  for (const { name, kind } of directory.list()) {
    visit?.(path + name)
    if (kind === 'directory') {
      count.directories++
      using child = directory.open(name)
      countInto(child, count, `${path}${name}/`, depth + 1, visit)
    } else {
      count.files++
      if (kind === 'file') count.bytes += lstatSync(directory.at(name)).size
    }
  }
}

function emptyInto(
  directory: Directory,
  count: TreeCount,
  depth: number,
  signal: AbortSignal | undefined,
): void {
  if (depth > removeMaxDepth) throw new TooDeepError('nested too deep')
  for (const { name, kind } of directory.list()) {
    signal?.throwIfAborted()
    if (kind === 'directory') {
      using child = directory.open(name)
      emptyInto(child, count, depth + 1, signal)
      rmdirSync(directory.at(name))
      count.directories++
    } else {
      if (kind === 'file') count.bytes += lstatSync(directory.at(name)).size
      unlinkSync(directory.at(name))
      count.files++
    }
  }
}
