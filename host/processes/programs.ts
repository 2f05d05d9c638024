/**
 * Finds the programs of this machine that Caisson runs, as absolute paths. PATH says where to look, but is not
 * obeyed blindly: what a project, a workspace or another user could have put there is never run. Runs nothing.
 */
import { access, constants, realpath, stat } from 'node:fs/promises'
import { homedir } from 'node:os'
import path from 'node:path'
import type { Result } from '#specs/protocol/error.ts'
import { type Distrust, findDistrust } from '../files/path-trust.ts'

/** Where administrators' programs are and a plain user's PATH may not be. */
const SYSTEM_FOLDERS = ['/usr/bin', '/usr/sbin', '/usr/local/bin', '/bin', '/sbin']
const PACKAGE_PROGRAMS = /(^|\/)node_modules\/\.bin(\/|$)/

/** A program that PATH names and that is not run. */
interface LeftOutProgram {
  /** As PATH has it. */
  readonly place: string
  readonly why: string
}

interface FoundProgram {
  /** Absolute, links resolved; absent when there is none that may be run. */
  readonly path?: string
  /** What PATH has before it, or instead of it. */
  readonly leftOut: readonly LeftOutProgram[]
}

const closed = new Set<string>()

/**
 * From now on no program comes from this directory or from below it: an agent writes to it.
 * @param directory a real path
 */
export function closeToPrograms(directory: string): void {
  closed.add(directory)
}

/** Looks for the executable `name` along PATH, then where the system has its own. */
export async function searchProgram(name: string, search = process.env.PATH): Promise<FoundProgram> {
  const leftOut: LeftOutProgram[] = []
  for (const folder of foldersOf(search)) {
    const place = path.join(folder, name)
    const found = await realpath(place).catch(() => undefined)
    if (found === undefined || !(await isExecutable(found))) continue
    const why = await refuse(folder, place)
    if (why === undefined) return { path: found, leftOut }
    leftOut.push({ place: path.isAbsolute(place) ? place : `./${place}`, why })
  }
  return { leftOut }
}

/** The absolute path of a program; undefined when there is none that may be run. */
export async function findProgram(name: string): Promise<string | undefined> {
  return (await searchProgram(name)).path
}

/** For the end of a message: what searches left out and why; empty when nothing was. */
export function describeLeftOut(...found: readonly FoundProgram[]): string {
  const leftOut = found.flatMap((one) => one.leftOut)
  if (leftOut.length === 0) return ''
  return `; not used: ${leftOut.map(({ place, why }) => `"${place}" (${why})`).join(', ')}`
}

/** PATH for a script of ours that runs programs by name: only folders that programs may come from. */
export async function trustedSearchPath(search = process.env.PATH): Promise<string> {
  const kept: string[] = []
  for (const folder of new Set(foldersOf(search))) {
    const isThere = await stat(folder).then(
      (found) => found.isDirectory(),
      () => false,
    )
    if (isThere && (await refuse(folder, folder)) === undefined) kept.push(folder)
  }
  return kept.join(path.delimiter)
}

function foldersOf(search: string | undefined): string[] {
  return [...(search === undefined ? [] : search.split(path.delimiter)), ...SYSTEM_FOLDERS]
}

/** Why nothing from this entry of PATH, or not this program of it, is run. */
async function refuse(folder: string, place: string): Promise<string | undefined> {
  if (folder === '') return 'PATH has an empty entry, which stands for the current directory'
  if (!path.isAbsolute(folder)) return 'PATH names the folder by a relative path'
  const real = [await realpath(folder), await realpath(place)]
  if ([folder, ...real].some((one) => PACKAGE_PROGRAMS.test(one)))
    return "a project's packages put programs there"
  if (real.some((one) => [...closed].some((directory) => isWithin(directory, one))))
    return 'it lies in a workspace'
  const distrust = attemptDistrust(place)
  if (distrust === undefined) return await refuseSticky(folder)
  return distrust.at === place ? `it ${distrust.why}` : `"${distrust.at}" ${distrust.why}`
}

/** A sticky folder keeps what is in it from others, but anyone may put a program there. */
async function refuseSticky(folder: string): Promise<string | undefined> {
  const { mode } = await stat(folder)
  return (mode & 0o002) === 0 ? undefined : `"${folder}" can be written by others`
}

function attemptDistrust(place: string): Distrust | undefined {
  try {
    return findDistrust(place)
  } catch (thrown) {
    return { at: place, why: `cannot be looked at: ${thrown instanceof Error ? thrown.message : thrown}` }
  }
}

async function isExecutable(file: string): Promise<boolean> {
  try {
    await access(file, constants.X_OK)
    return (await stat(file)).isFile()
  } catch {
    return false
  }
}

function isWithin(outer: string, inner: string): boolean {
  return inner === outer || inner.startsWith(`${outer}${path.sep}`)
}

type Environment = Readonly<Record<string, string | undefined>>

/** The absolute path; the error, to be read behind the name, says why it is not run. What others can exchange is not run. */
export async function findCommand(name: string, env: Environment): Promise<Result<string, string>> {
  const place = expandHome(name, env)
  if (!path.isAbsolute(place) && place.includes(path.sep))
    return { ok: false, error: 'is a relative path; use an absolute path, one from ~/, or only a name' }
  const isWhole = path.isAbsolute(place)
  const found = await searchProgram(path.basename(place), isWhole ? path.dirname(place) : env.PATH)
  // The search continues where the system has its programs; a whole path means that one file.
  const isIt = !isWhole || found.path === (await realpath(place).catch(() => undefined))
  if (found.path !== undefined && isIt) return { ok: true, value: found.path }
  const why = `does not exist or is not executable${describeLeftOut(found)}; correct it in the configuration file`
  return { ok: false, error: why }
}

/** `~/` means the home folder. */
export function expandHome(file: string, env: Environment): string {
  return file.startsWith('~/') ? path.join(env.HOME || homedir(), file.slice(2)) : file
}
