/** Counts and removes whole directories by descriptor, so that nothing outside of them can be hit. */
import { lstatSync, rmdirSync, unlinkSync } from 'node:fs'
import type { Directory } from '#specs/node/directory.ts'

/** Directories within directories; each level holds a descriptor. */
export const removeMaxDepth = 256

export interface TreeCount {
  files: number
  directories: number
  /** Of the files. */
  bytes: number
}

/** Thrown where a tree is deeper than {@link removeMaxDepth}. */
export class TooDeepError extends Error {
  override readonly name = 'TooDeepError'
}

/**
 * Counts what is in `directory`, it itself not counted; directories that cannot be read are counted without content.
 * @param visit called for each path below it, files and directories, until it returns false
 */
export function countTree(directory: Directory, visit?: (path: string) => void): TreeCount {
  const count: TreeCount = { files: 0, directories: 0, bytes: 0 }
  countInto(directory, count, '', 0, visit)
  return count
}

/** Removes all that is in `directory`; it itself stays. Throws the system's error, with part of the work done. */
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
