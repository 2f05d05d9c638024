/** Makes a tar archive of a folder, as `unpackWorkspace` takes it. */
import path from 'node:path'
import { CaissonError } from '#specs/errors.ts'
import { CopyLog } from '../control/copy.ts'
import { archiveOf } from '../control/copy-in.ts'

/** @throws {CaissonError} `file_not_found`; `not_possible_now` for what no archive can have, and what changes meanwhile */
export async function* packWorkspace(directory: string): AsyncGenerator<Uint8Array> {
  const log = new CopyLog()
  yield* archiveOf(path.resolve(directory), '.', log, {})
  const [first] = log.result().leftOut
  if (first === undefined) return
  throw new CaissonError('not_possible_now', `${first.path} cannot be in an archive: ${first.reason}`, {
    remedy: 'remove or rename it',
  })
}
