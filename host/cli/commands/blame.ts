/** `caisson workspace blame`: which call of a run made each line of a file, and what is behind one of them. */
import { CaissonError, hasCode } from '#specs/errors.ts'
import type { Blame, BlamedLine } from '../../blame/blame.ts'
import type { RunChanges } from '../../runs/changes.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { blameLines, chainLines } from '../render/blame-lines.ts'
import { writeLines } from '../render/fit.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { openChanges } from './changes-of-run.ts'

interface BlameFlags {
  readonly json?: boolean
}

export async function workspaceBlame(
  io: Io,
  name: string,
  given: string,
  flags: BlameFlags,
): Promise<ExitCode> {
  const host = hostOf(io)
  const { changes } = await openChanges(io, name)
  const { path, line } = placeOf(given, await isChange(changes, given))
  const blame = await host.blame(changes.runId, path)
  if (line === undefined) {
    if (flags.json === true) await writeJsonLine(io.stdout, blame)
    else writeLines(io.stdout, blameLines(blame, io.stdout.isTTY === true ? (io.stdout.columns ?? 80) : 120))
    return exitCodes.completed
  }
  const found = requireLine(blame, line)
  if (flags.json === true) await writeJsonLine(io.stdout, onlyLine(blame, found))
  else writeLines(io.stdout, chainLines(blame, found))
  return exitCodes.completed
}

async function isChange(changes: RunChanges, path: string): Promise<boolean> {
  try {
    await changes.versions(path)
    return true
  } catch (error) {
    if (hasCode(error, 'invalid_options')) return false
    throw error
  }
}

/** `FILE` or `FILE:LINE`; a file may have such a name itself. */
function placeOf(given: string, isPath: boolean): { readonly path: string; readonly line?: number } {
  const [, path, line] = /^(.+):(\d{1,9})$/s.exec(given) ?? []
  return isPath || path === undefined ? { path: given } : { path, line: Number(line) }
}

function requireLine({ lines, path }: Blame, number: number): BlamedLine {
  const found = lines[number - 1]
  if (found !== undefined) return found
  throw new CaissonError(
    'invalid_options',
    `${JSON.stringify(path)} has ${lines.length} lines as the run left it, and no line ${number}`,
  )
}

/** The line with the calls that it names, counted anew. */
function onlyLine(blame: Blame, line: BlamedLine): Blame {
  const { origin } = line
  const { deletion: _, ...about } = blame
  const pick = (positions: readonly number[]) => positions.flatMap((at) => blame.calls[at] ?? [])
  if (origin.kind === 'candidates') {
    const calls = origin.calls.map((_call, index) => index)
    return {
      ...about,
      lines: [{ ...line, origin: { ...origin, calls } }],
      removed: [],
      calls: pick(origin.calls),
    }
  }
  const at = origin.kind === 'call' ? origin.call : origin.moved
  if (at === undefined) return { ...about, lines: [line], removed: [], calls: [] }
  const alone = origin.kind === 'call' ? { ...origin, call: 0 } : { ...origin, moved: 0 }
  return { ...about, lines: [{ ...line, origin: alone }], removed: [], calls: pick([at]) }
}
