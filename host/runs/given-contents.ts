/**
 * Contents that a run gets in the place of what the disk has: checked before a run exists. Refuses what leads out of the
 * workspace, what is no file, and more than a run has room for. The scan decides by its own rules whether a path goes in.
 */
import { lstatSync } from 'node:fs'
import path from 'node:path'
import { CaissonError } from '#specs/errors.ts'
import { errnoOf } from '#specs/node/file-error.ts'
import { type FileContent, fileContentsMaxBytes } from '#specs/protocol/file-contents.ts'

/**
 * @param contents by path in the workspace
 * @param directory real path of the workspace
 * @throws {CaissonError} `invalid_options`, with the path and the reason
 */
export function readGivenContents(
  contents: Readonly<Record<string, FileContent>>,
  directory: string,
): ReadonlyMap<string, Buffer> {
  const given = new Map<string, Buffer>()
  let bytes = 0
  for (const [file, content] of Object.entries(contents)) {
    const problem = findProblem(directory, file)
    if (problem !== undefined) throw unusable(`${JSON.stringify(file)}: ${problem}`)
    const buffer = typeof content === 'string' ? Buffer.from(content) : Buffer.from(content.base64, 'base64')
    bytes += buffer.length
    if (bytes > fileContentsMaxBytes)
      throw unusable(`together they have more than ${fileContentsMaxBytes} bytes; save the files first`)
    given.set(file, buffer)
  }
  return given
}

/** Its directories are there and are no links; itself it is a file, or not there. */
function findProblem(directory: string, file: string): string | undefined {
  const names = file.split('/')
  for (let count = 1; count <= names.length; count++) {
    const isLast = count === names.length
    try {
      const stat = lstatSync(path.join(directory, ...names.slice(0, count)))
      if (isLast ? stat.isFile() : stat.isDirectory()) continue
      return stat.isSymbolicLink() ? 'a link is on its way; name the file itself' : 'it is no regular file'
    } catch (error) {
      if (isLast && errnoOf(error) === 'ENOENT') continue
      return 'its directory is not there, or cannot be read; make it first'
    }
  }
  return undefined
}

function unusable(why: string): CaissonError {
  return new CaissonError('invalid_options', `files.contents cannot be used: ${why}`)
}
