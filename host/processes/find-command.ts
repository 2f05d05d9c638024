/** The program that the user's configuration names, by PATH as every program of this host or by its whole path. Runs nothing. */
import { realpath } from 'node:fs/promises'
import { homedir } from 'node:os'
import path from 'node:path'
import type { Result } from '#specs/protocol/error.ts'
import { describeLeftOut, searchProgram } from './programs.ts'

type Environment = Readonly<Record<string, string | undefined>>

/** The absolute path; the error, to be read behind the name, says why it is not run. What others can exchange is not run. */
export async function findCommand(name: string, env: Environment): Promise<Result<string, string>> {
  const place = expandHome(name, env)
  if (!path.isAbsolute(place) && place.includes(path.sep))
    return { ok: false, error: 'is a relative path; use an absolute path, one from ~/, or only a name' }
  const isWhole = path.isAbsolute(place)
  const found = await searchProgram(path.basename(place), isWhole ? path.dirname(place) : env.PATH)
  // The search goes on where the system has its programs; a whole path means that one file.
  const isIt = !isWhole || found.path === (await realpath(place).catch(() => undefined))
  if (found.path !== undefined && isIt) return { ok: true, value: found.path }
  const why = `does not exist or is not executable${describeLeftOut(found)}; correct it in the configuration file`
  return { ok: false, error: why }
}

/** `~/` means the home folder. */
export function expandHome(file: string, env: Environment): string {
  return file.startsWith('~/') ? path.join(env.HOME || homedir(), file.slice(2)) : file
}
