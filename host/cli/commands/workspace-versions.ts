/** `caisson workspace show` and `merge`: the other side of a conflict, as a file or merged three ways. */

import { isUtf8 } from 'node:buffer'
import { execFile } from 'node:child_process'
import { fchmodSync, lstatSync, mkdtempSync, rmSync, writeFileSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { Root } from '#specs/node/descriptor-walk.ts'
import { formatCount } from '../../files/format.ts'
import { findProgram } from '../../processes/programs.ts'
import type { FileVersion, RunChanges } from '../../runs/changes.ts'
import { isBinary } from '../../workspace/index.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { findEditor } from '../prompts/plan-editor.ts'
import { sanitizeBlock, sanitizeLine } from '../render/sanitize.ts'
import { openChanges } from './changes-of-run.ts'

export interface VersionFlags {
  readonly base?: boolean
  /** Path of a new file. */
  readonly output?: string
}

export async function workspaceShow(
  io: Io,
  name: string,
  file: string,
  flags: VersionFlags,
): Promise<ExitCode> {
  const { changes } = await openChanges(io, name)
  const versions = await changes.versions(file)
  const content = contentOf(flags.base === true ? versions.base : versions.run, file)
  if (flags.output !== undefined) {
    writeNew(io, flags.output, content)
    io.stderr.write(`wrote ${sanitizeLine(flags.output)}\n`)
  } else if (io.stdout.isTTY === true) io.stdout.write(`${sanitizeBlock(content.toString('utf8'), '')}\n`)
  else io.stdout.write(content)
  return exitCodes.completed
}

/** Exits with 0 when nothing is left to decide in the merged file, else with 5. */
export async function workspaceMerge(
  io: Io,
  name: string,
  file: string,
  flags: VersionFlags,
): Promise<ExitCode> {
  const host = hostOf(io)
  const { changes } = await openChanges(io, name)
  const { base, run, host: mine } = await changes.versions(file)
  const isNew = 'none' in base && !changes.wentIn(file)
  const take = `keep your file, or take that of the run: caisson workspace show ${changes.runId} PATH --output FILE`
  const remedy = `${take}. The difference between them: caisson workspace diff ${changes.runId} PATH --patch`
  if ([base, run, mine].some((side) => 'content' in side && isBinary(side.content)))
    throw new CaissonError('not_possible_now', `"${file}" cannot be merged: a version of it is binary`, {
      remedy: take,
    })
  const sides = {
    run: contentOf(run, file, remedy),
    host: contentOf(mine, file, remedy),
    base: isNew ? Buffer.alloc(0) : contentOf(base, file, remedy),
  }
  const merged = await mergeFiles({ ...sides, runId: changes.runId })
  const target = flags.output ?? `${file}.caisson-${changes.runId}`
  // Before the person edits what could not be written then.
  requireNew(flags.output === undefined ? changes.directory : (io.directory ?? process.cwd()), target)
  const content = (await edited(io, host.runs.paths(changes.runId).directory, file, merged)) ?? merged
  if (flags.output === undefined) writeBeside(changes, file, target, content)
  else writeNew(io, target, content)
  const open = content.toString('latin1').match(/^<<<<<<< /gm)?.length ?? 0
  const state = open === 0 ? 'no conflict is left' : `${formatCount(open, 'conflict')} to resolve in it`
  io.stdout.write(
    `Merged into ${sanitizeLine(target)}: ${state}. "${sanitizeLine(file)}" is unchanged; when the merge is right, move it there.\n`,
  )
  return open === 0 ? exitCodes.completed : exitCodes.notAllApplied
}

/** In a terminal the person edits the merge. Undefined: there is no terminal or no editor. */
async function edited(io: Io, folder: string, file: string, merged: Buffer): Promise<Buffer | undefined> {
  if (io.stdin.isTTY !== true || io.stdout.isTTY !== true) return undefined
  if (!isUtf8(merged)) {
    io.stderr.write('caisson: the merge is not UTF-8, so no editor was opened; edit the file that it is in\n')
    return undefined
  }
  const edit = await findEditor(io, folder)
  const result = await edit?.(merged.toString('utf8'), `merge${path.extname(file)}`)
  if (result === undefined) return undefined
  if (result.ok) return Buffer.from(result.value)
  io.stderr.write(`caisson: ${sanitizeLine(result.error)}; the merge is as git made it\n`)
  return undefined
}

interface Sides {
  readonly base: Buffer
  readonly run: Buffer
  readonly host: Buffer
  readonly runId: string
}

/** By `git merge-file`, in a folder of its own and without configuration. @throws {CaissonError} */
async function mergeFiles({ base, run, host, runId }: Sides): Promise<Buffer> {
  const git = await findProgram('git')
  if (git === undefined)
    throw new CaissonError('not_possible_now', 'a merge needs git, which is not installed', {
      remedy: `install git, or compare the versions: caisson workspace show ${runId} PATH --output FILE`,
    })
  const folder = mkdtempSync(path.join(tmpdir(), 'caisson-merge-'))
  try {
    const files = { host, base, run }
    for (const [side, content] of Object.entries(files))
      writeFileSync(path.join(folder, side), content, { mode: 0o600 })
    const labels = ['-L', 'yours', '-L', 'before the run', '-L', runId]
    const { stdout } = await promisify(execFile)(
      git,
      ['merge-file', '-p', ...labels, 'host', 'base', 'run'],
      {
        cwd: folder,
        encoding: 'buffer',
        env: {
          GIT_CONFIG_NOSYSTEM: '1',
          GIT_CONFIG_GLOBAL: '/dev/null',
          GIT_CEILING_DIRECTORIES: path.dirname(folder),
        },
        maxBuffer: 512 * 1024 * 1024,
      },
    ).catch((error: unknown) => {
      // Its exit code is the number of conflicts, at most 127.
      const { code, stdout } = error as { code?: unknown; stdout?: unknown }
      if (typeof code === 'number' && code > 0 && code < 128 && Buffer.isBuffer(stdout)) return { stdout }
      throw new CaissonError('not_possible_now', `git could not merge the versions: ${errorMessage(error)}`)
    })
    return stdout
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

function contentOf(version: FileVersion, file: string, remedy?: string): Buffer {
  if ('content' in version) return version.content
  throw new CaissonError(
    'not_possible_now',
    `"${file}": there is no such version: ${version.none}`,
    remedy === undefined ? {} : { remedy },
  )
}

function requireNew(folder: string, file: string): void {
  const found = lstatSync(path.resolve(folder, file), { throwIfNoEntry: false })
  if (found !== undefined) throw notWritten(file, new Error('it exists already'))
}

/** Never overwrites a file. */
function writeNew(io: Io, file: string, content: Buffer): void {
  try {
    writeFileSync(path.resolve(io.directory ?? process.cwd(), file), content, { flag: 'wx' })
  } catch (error) {
    throw notWritten(file, error)
  }
}

/** The same in the workspace with the permissions of `file`, never through a link. */
function writeBeside(changes: RunChanges, file: string, target: string, content: Buffer): void {
  const opened = Root.open(changes.directory)
  if (!opened.ok) throw notWritten(target, opened.error)
  using root = opened.value
  const located = root.locate(target, { links: 'refuse' })
  if (!located.ok) throw notWritten(target, located.error)
  using place = located.value
  const created = place.createFile(0o600)
  if (!created.ok) throw notWritten(target, created.error)
  using made = created.value
  fchmodSync(made.fd, permissionsOf(root, file))
  for (let done = 0; done < content.length; ) done += writeSync(made.fd, content, done)
}

function permissionsOf(root: Root, file: string): number {
  const located = root.locate(file, { links: 'refuse' })
  if (!located.ok) return 0o600
  using place = located.value
  const found = place.stat()
  return found.ok && found.value.isFile() ? found.value.mode & 0o777 : 0o600
}

function notWritten(file: string, error: unknown): CaissonError {
  const why = error instanceof Error ? error.message : String((error as { message?: unknown }).message)
  return new CaissonError('invalid_options', `cannot write "${file}": ${why}`, {
    remedy: 'name a new file: --output FILE',
  })
}
