/**
 * Images of a task: files of the workspace, checked on the host before a run exists. Refuses what leads out of the
 * workspace, what no model could get, and more than one request has room for.
 */
import { createHash } from 'node:crypto'
import { closeSync, constants, fstatSync, openSync, readSync, realpathSync } from 'node:fs'
import path from 'node:path'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { errnoOf } from '#specs/node/file-error.ts'
import type { Result } from '#specs/protocol/error.ts'
import {
  type ImageRef,
  imageMaxBytes,
  imagesMaxBytes,
  imagesMaxCount,
  readImage,
} from '#specs/protocol/image.ts'
import { WorkspacePath } from '#specs/protocol/text.ts'

export interface TaskImage {
  /** Relative to the workspace, links resolved. */
  readonly path: string
  readonly image: ImageRef
}

/**
 * @param files relative to the workspace, or absolute in it
 * @param contents in the place of what the disk has, by path in the workspace
 * @throws {CaissonError} `invalid_options`, with the file and the reason
 */
export function readTaskImages(
  files: readonly string[],
  directory: string,
  contents: ReadonlyMap<string, Buffer> = new Map(),
): TaskImage[] {
  if (files.length > imagesMaxCount) throw unusable(`a task may have at most ${imagesMaxCount} images`)
  const images = files.map((file) => {
    const inside = path.relative(directory, path.resolve(directory, file))
    const given = contents.get(inside)
    const read = given === undefined ? readTaskImage(file, directory) : readGivenImage(inside, given)
    if (!read.ok) throw unusable(`${JSON.stringify(file)}: ${read.error}`)
    return read.value
  })
  const bytes = images.reduce((sum, { image }) => sum + image.sizeBytes, 0)
  if (bytes > imagesMaxBytes)
    throw unusable(`together they have ${bytes} bytes, of at most ${imagesMaxBytes}; make smaller copies`)
  return images
}

function readTaskImage(file: string, directory: string): Result<TaskImage, string> {
  const root = realpathSync(directory)
  const named = path.resolve(directory, file)
  if (named === root || named === path.resolve(directory)) return { ok: false, error: notFile }
  // First by name: an error must not tell what is elsewhere.
  if (isOutside(directory, named) && isOutside(root, named)) return outside
  let fd: number
  let real: string
  try {
    real = realpathSync(named)
    if (isOutside(root, real)) return outside
    fd = openSync(real, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  } catch (error) {
    return { ok: false, error: errnoOf(error) === 'ENOENT' ? 'it does not exist' : errorMessage(error) }
  }
  try {
    const image = readOpenImage(fd)
    if (!image.ok) return image
    const inside = WorkspacePath.safeParse(path.relative(root, real))
    if (!inside.success) return { ok: false, error: 'the path cannot be used in a workspace' }
    return { ok: true, value: { path: inside.data, image: image.value } }
  } finally {
    closeSync(fd)
  }
}

function readGivenImage(file: string, content: Buffer): Result<TaskImage, string> {
  if (content.length > imageMaxBytes)
    return { ok: false, error: `it has ${content.length} bytes, of at most ${imageMaxBytes}` }
  const image = readWholeImage(content)
  return image.ok ? { ok: true, value: { path: file, image: image.value } } : image
}

function readOpenImage(fd: number): Result<ImageRef, string> {
  const stat = fstatSync(fd)
  if (!stat.isFile()) return { ok: false, error: notFile }
  if (stat.size > imageMaxBytes) {
    return { ok: false, error: `it has ${stat.size} bytes, of at most ${imageMaxBytes}; make a smaller copy` }
  }
  // One byte more: the file may have grown.
  const bytes = Buffer.alloc(stat.size + 1)
  let size = 0
  for (let count = -1; count !== 0 && size < bytes.length; size += count) {
    count = readSync(fd, bytes, size, bytes.length - size, size)
  }
  return readWholeImage(bytes.subarray(0, size))
}

function readWholeImage(whole: Buffer): Result<ImageRef, string> {
  const read = readImage(whole)
  if (!read.ok) return { ok: false, error: `${read.error}; convert it, or make a smaller copy` }
  return { ok: true, value: { sha256: createHash('sha256').update(whole).digest('hex'), ...read.value } }
}

const notFile = 'it is no regular file; name the image itself'
const outside = { ok: false, error: 'it is outside of the workspace; copy it there' } as const

function isOutside(root: string, file: string): boolean {
  const relative = path.relative(root, file)
  return (
    relative === '' || relative === '..' || relative.startsWith(`..${path.sep}`) || path.isAbsolute(relative)
  )
}

/** The pattern of `--include` that matches this path alone. */
export function patternOf({ path: file }: TaskImage): string {
  return `/${file.replaceAll(/[\\*?[\]!# ]/g, (character) => `\\${character}`)}`
}

function unusable(why: string): CaissonError {
  return new CaissonError('invalid_options', `the images of the task cannot be used: ${why}`)
}
