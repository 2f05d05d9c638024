/** `caisson workspace`: the changes of an earlier run, shown, applied, undone. */

import { CaissonError } from '#specs/errors.ts'
import { formatCount } from '../../files/format.ts'
import type { ReviewedChange, RunChanges } from '../../runs/changes.ts'
import type { ChangeSelection } from '../../workspace/index.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { StopOnSignal } from '../interrupts.ts'
import type { Io } from '../io.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { nextCommands } from '../render/next-commands.ts'
import { sanitizeBlock, sanitizeLine } from '../render/sanitize.ts'
import { openChanges, undoChangesOf } from './changes-of-run.ts'
import { askSelection, readSelection } from './choose-changes.ts'
import { isComplete, printApplied, showChanges } from './review-changes.ts'

/** Bytes of the larger side of a file in a patch. */
const patchMaxBytes = 16 * 1024 * 1024

export async function workspaceDiff(
  io: Io,
  name: string,
  paths: string[],
  flags: { json?: boolean; patch?: boolean },
): Promise<ExitCode> {
  if (flags.json === true && flags.patch === true)
    throw new CaissonError('invalid_options', '--json and --patch cannot be combined; use one of them')
  const { changes } = await openChanges(io, name)
  const wanted =
    paths.length === 0 ? undefined : paths.map((path) => path.replace(/\/+$/, '').replace(/^\.\//, ''))
  const isWanted = (path: string) =>
    wanted === undefined || wanted.some((one) => path === one || path.startsWith(`${one}/`))
  if (wanted !== undefined) {
    const items = await changes.review()
    const missing = wanted.find(
      (one) => !items.some(({ path }) => path === one || path.startsWith(`${one}/`)),
    )
    if (missing !== undefined)
      throw new CaissonError(
        'invalid_options',
        `no change of ${changes.runId} has the path ${JSON.stringify(missing)}`,
      )
  }
  if (flags.json === true || flags.patch === true) {
    for await (const item of changes.reviewWithDiffs(
      flags.patch === true ? { maxBytes: patchMaxBytes } : {},
    )) {
      if (!isWanted(item.path)) continue
      if (flags.json === true) await writeJsonLine(io.stdout, item)
      else printPatch(io, item)
    }
  } else {
    const { items, ...inspected } = await changes.inspect()
    await showChanges(
      io,
      changes,
      { ...inspected, items: items.filter(({ path }) => isWanted(path)) },
      {
        maxDiffs: 10_000,
        maxLines: 100_000,
        maxChars: 4_000,
      },
    )
  }
  return exitCodes.completed
}

/** From the host's file to that of the run. In a terminal nothing that it obeys. */
function printPatch(io: Io, { path, diff, noDiff, before, after, state }: ReviewedChange): void {
  if (diff === null || diff === '') {
    const why = noDiff ?? 'only its mode changed'
    io.stderr.write(`caisson: ${sanitizeLine(path)} is not in the patch: ${sanitizeLine(why)}\n`)
    return
  }
  const isNew = before === undefined && state.kind === 'clear'
  const patch = diff
    .replace(/^--- .*$/m, (line) => (isNew ? '--- /dev/null' : line))
    .replace(/^\+\+\+ .*$/m, (line) => (after === undefined ? '+++ /dev/null' : line))
  io.stdout.write(io.stdout.isTTY === true ? `${sanitizeBlock(patch, '')}\n` : patch)
}

export async function workspaceApply(
  io: Io,
  name: string,
  paths: string[],
  flags: { all?: boolean; json?: boolean },
): Promise<ExitCode> {
  const isAsked =
    paths.length === 0 &&
    flags.all !== true &&
    flags.json !== true &&
    io.stdin.isTTY === true &&
    io.stdout.isTTY === true
  if (paths.length === 0 && flags.all !== true && !isAsked)
    throw new CaissonError(
      'invalid_options',
      'name the paths to apply, or use --all for everything that is neither flagged nor in conflict',
    )
  if (paths.length > 0 && flags.all === true)
    throw new CaissonError('invalid_options', '--all and paths cannot be combined; use one of them')
  const { changes, apply } = await openChanges(io, name)
  const selection = isAsked
    ? await askWhich(io, changes)
    : paths.length === 0
      ? ('all' as const)
      : await readSelection(paths, changes)
  if (selection === null) {
    io.stdout.write('Nothing was applied.\n')
    return exitCodes.completed
  }
  using stop = new StopOnSignal('is ignored')
  const summary = await apply(selection, stop)
  if (flags.json === true) await writeJsonLine(io.stdout, summary)
  else printApplied(io, changes.runId, summary)
  return isComplete(summary) ? exitCodes.completed : exitCodes.notAllApplied
}

async function askWhich(io: Io, changes: RunChanges): Promise<ChangeSelection | null> {
  const inspected = await changes.inspect()
  await showChanges(io, changes, inspected)
  return await askSelection(io, changes, inspected, undefined)
}

export async function workspaceUndo(io: Io, name: string, flags: { json?: boolean }): Promise<ExitCode> {
  using stop = new StopOnSignal('is ignored')
  const { runId, summary } = await undoChangesOf(io, name, stop)
  if (flags.json === true) await writeJsonLine(io.stdout, summary)
  else {
    const nothing = summary.restored.length === 0 && summary.conflicts.length === 0
    if (!nothing) io.stdout.write(`Restored ${formatCount(summary.restored.length, 'path')}.\n`)
    else if (summary.problems.length === 0) io.stdout.write('No changes of this run are applied.\n')
    for (const { path, reason } of summary.conflicts)
      io.stdout.write(`  not restored: ${sanitizeLine(path)}: ${sanitizeLine(reason)}\n`)
    if (summary.stopped !== undefined)
      io.stdout.write(
        `Stopped before the end: ${sanitizeLine(summary.stopped.message)}\n` +
          `  continue: ${nextCommands(io, runId).undo}\n`,
      )
  }
  for (const problem of summary.problems) io.stderr.write(`caisson: ${sanitizeLine(problem, 2_000)}\n`)
  const isWhole = summary.conflicts.length === 0 && summary.problems.length === 0
  return isWhole && summary.stopped === undefined ? exitCodes.completed : exitCodes.notAllApplied
}
