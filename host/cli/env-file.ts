/** `--env-file`: variables of a file for one command, below those of the environment. Refuses a file that others can write. */
import { constants } from 'node:fs'
import { open } from 'node:fs/promises'
import { parseEnv } from 'node:util'
import { CaissonError, errorMessage, hasCode } from '#specs/errors.ts'
import { readBounded } from '../files/regular-file.ts'
import type { Io } from './io.ts'
import { sanitizeLine } from './render/sanitize.ts'

const fileMaxBytes = 64 * 1024
/** They change how programs of this machine start; a file of settings has no business with them. */
const startsPrograms = /^(?:PATH|NODE_OPTIONS|NODE_PATH|LD_.*|DYLD_.*)$/

/**
 * @param file of lines `NAME=value`. Absent: nothing changes
 * @throws {CaissonError} `invalid_options` when the file cannot be read, or sets a variable that it may not
 */
export async function withEnvFile(io: Io, file: string | undefined): Promise<Io> {
  if (file === undefined) return io
  const given = parseEnv(await readEnvFile(file))
  const refused = Object.keys(given).find((name) => startsPrograms.test(name))
  if (refused !== undefined)
    throw new CaissonError('invalid_options', `--env-file ${shown(file)} sets ${refused}`, {
      remedy: 'remove that line, or set the variable in your shell',
    })
  return { ...io, env: { ...given, ...io.env } }
}

async function readEnvFile(file: string): Promise<string> {
  try {
    await using handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK)
    const found = await handle.stat()
    const me = process.getuid?.() ?? found.uid
    const why = !found.isFile()
      ? 'is not a file'
      : (found.mode & 0o022) !== 0 || (found.uid !== me && found.uid !== 0)
        ? 'can be written by other users'
        : undefined
    const bytes = why === undefined ? await readBounded(handle, fileMaxBytes) : null
    if (bytes !== null) return bytes.toString('utf8')
    const problem = why ?? `is larger than ${fileMaxBytes} bytes`
    throw new CaissonError('invalid_options', `--env-file ${shown(file)} ${problem}`, {
      remedy: 'name a file of lines NAME=value that only you can write, such as a copy of .env.example',
    })
  } catch (error) {
    if (hasCode(error, 'invalid_options')) throw error
    throw new CaissonError(
      'invalid_options',
      `--env-file ${shown(file)} cannot be read: ${errorMessage(error)}`,
      {
        remedy: 'name a file of lines NAME=value, such as a copy of .env.example',
        cause: error,
      },
    )
  }
}

function shown(file: string): string {
  return JSON.stringify(sanitizeLine(file))
}
