/**
 * Lets a person change a text in their editor, in a file of their own that is gone afterwards. The editor is theirs by
 * VISUAL or EDITOR, found where Caisson's programs are; it runs in that file's folder, never in a workspace.
 */

import { spawn } from 'node:child_process'
import { readFile, rm, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { errorMessage } from '#specs/errors.ts'
import type { Result } from '#specs/protocol/error.ts'
import { searchProgram } from '../../processes/programs.ts'
import type { Io } from '../io.ts'

/** Where nothing is set. */
const usual = ['editor', 'nano', 'vi']
/** Far more than a plan may be. */
const maxBytes = 4 * 1024 * 1024

/** @param fileName of the file that the editor opens; absent: of a plan */
export type EditText = (text: string, fileName?: string) => Promise<Result<string, string>>

/** @param folder of this user alone, such as a run's. @returns undefined where there is no editor */
export async function findEditor(io: Pick<Io, 'env'>, folder: string): Promise<EditText | undefined> {
  const { VISUAL, EDITOR, PATH } = io.env
  for (const command of [VISUAL, EDITOR, ...usual]) {
    const [name = '', ...argv] = (command ?? '').trim().split(/\s+/)
    if (name === '') continue
    const isWhole = path.isAbsolute(name)
    const found = await searchProgram(path.basename(name), isWhole ? path.dirname(name) : PATH)
    const program = found.path
    if (program !== undefined)
      return (text, fileName = 'plan-to-edit.json') =>
        edit({ program, name: path.basename(name), argv }, path.join(folder, fileName), text)
  }
  return undefined
}

interface Editor {
  /** The file that is run, links resolved. */
  readonly program: string
  /** Under which it was found: some programs are several by their name. */
  readonly name: string
  readonly argv: readonly string[]
}

async function edit(
  { program, name, argv }: Editor,
  file: string,
  text: string,
): Promise<Result<string, string>> {
  try {
    await writeFile(file, text, { mode: 0o600 })
    const ended = Promise.withResolvers<number | null>()
    const child = spawn(program, [...argv, file], { stdio: 'inherit', cwd: path.dirname(file), argv0: name })
    child.once('error', ended.reject)
    child.once('exit', ended.resolve)
    const code = await ended.promise
    if (code !== 0) return { ok: false, error: `the editor ended with ${code ?? 'a signal'}` }
    if ((await stat(file)).size > maxBytes) return { ok: false, error: `it is longer than ${maxBytes} bytes` }
    return { ok: true, value: await readFile(file, 'utf8') }
  } catch (error) {
    const word = errorMessage(error)
    return { ok: false, error: `${program} could not be used: ${word}` }
  } finally {
    await rm(file, { force: true }).catch(() => undefined)
  }
}
