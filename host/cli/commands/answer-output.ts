/** Where the final answer of `caisson run` goes besides the screen: `--output FILE` and `--quiet`. */
import { randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import { access, lstat, open, rename, rm } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError } from '#specs/errors.ts'
import { reasonOf } from '#specs/node/file-error.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import type { Io } from '../io.ts'
import { sanitizeBlock } from '../render/sanitize.ts'

/**
 * The absolute path of the file, found possible before a run costs anything.
 * @throws {CaissonError} `invalid_options`
 */
export async function checkOutputFile(file: string): Promise<string> {
  const target = path.resolve(file)
  const refuse = (why: string) =>
    new CaissonError(
      'invalid_options',
      `--output ${file}: ${why}; name a file in a folder that you may write to`,
    )
  const found = await lstat(target).catch(() => undefined)
  if (found !== undefined && !found.isFile()) throw refuse('is not a regular file')
  try {
    await access(path.dirname(target), constants.W_OK | constants.X_OK)
  } catch (error) {
    throw refuse(`its folder cannot be written to: ${reasonOf(error)}`)
  }
  return target
}

/**
 * Gives out the answer of a run that completed. Of another run there is none, and the file stays as it was; what its agent
 * said goes to standard error.
 * @param to `output` is a path of {@link checkOutputFile}
 */
export async function giveAnswer(
  io: Io,
  end: RunState['end'],
  { output, quiet }: { readonly output?: string | undefined; readonly quiet?: boolean | undefined },
): Promise<void> {
  if (end?.outcome !== 'completed') {
    // No answer, but often why there is none.
    if (quiet === true && end !== null && end.summary.trim() !== '')
      io.stderr.write(`${sanitizeBlock(end.summary.trimEnd(), '')}\n`)
    return
  }
  const text = end.summary === '' || end.summary.endsWith('\n') ? end.summary : `${end.summary}\n`
  if (output !== undefined) await replaceAnswer(output, text)
  if (quiet !== true) return
  // A program gets what the agent wrote; a terminal would obey it.
  io.stdout.write(io.stdout.isTTY === true ? `${sanitizeBlock(text.trimEnd(), '')}\n` : text)
}

/** A reader sees the old file or all of the new one. */
async function replaceAnswer(file: string, text: string): Promise<void> {
  const draft = `${file}.${randomBytes(6).toString('hex')}.new`
  try {
    {
      await using handle = await open(draft, 'wx', 0o666)
      await handle.writeFile(text)
      await handle.sync()
    }
    await rename(draft, file)
  } catch (error) {
    await rm(draft, { force: true })
    throw new CaissonError(
      'state_unavailable',
      `the answer could not be written to ${file}: ${reasonOf(error)}`,
    )
  }
}
