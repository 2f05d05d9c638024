/** After a run: shows its changes, lets the person choose or follows the flag, applies, and says what came of it. */
import type { RunState } from '#specs/protocol/run-state.ts'
import { formatCount } from '../../files/format.ts'
import type { InspectedChanges, RunChanges } from '../../runs/changes.ts'
import { type ApplySummary, type HeldBack, notChosen } from '../../workspace/index.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { StopOnSignal } from '../interrupts.ts'
import type { Io } from '../io.ts'
import { type Colors, colorsFor } from '../render/colors.ts'
import { writeLines } from '../render/fit.ts'
import { type NextCommands, nextCommands } from '../render/next-commands.ts'
import {
  changeLine,
  describeParts,
  diffLines,
  type FoldedObjects,
  foldObjects,
  historyLines,
  objectsLine,
} from '../render/review-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'
import type { OpenedChanges } from './changes-of-run.ts'
import { askSelection } from './choose-changes.ts'

/**
 * `ask` shows the changes and asks; true applies all that is safe; false applies nothing, which is what was wanted; `nobody`
 * applies nothing, for nobody said anything.
 */
export type ApplyChoice = 'ask' | 'nobody' | boolean

/** How much of the changes is shown. */
interface ShownBounds {
  /** More changes than this are listed without their diffs. */
  readonly maxDiffs: number
  /** Lines of each diff. */
  readonly maxLines: number
  /** Characters of each line. */
  readonly maxChars: number
}

/** After a run, when all of it is a command away. */
const afterRun: ShownBounds = { maxDiffs: 30, maxLines: 40, maxChars: 160 }
const listedMax = 200

interface HomeOptions {
  readonly choice: ApplyChoice
  /** How the run ended: what did not complete is applied only by a person who saw it. */
  readonly state: Pick<RunState, 'end' | 'heldBack'>
  /** For `--json`: given, one summary goes there and nothing is printed for people. */
  readonly emit?: (event: object) => Promise<void>
  /** Without a key, before an answer counts; absent: as every question. */
  readonly quietMs?: number
}

/** @returns 0 when everything that was chosen is on the host now, there are no changes, or none was requested; else 5 */
export async function reviewAndApply(
  io: Io,
  { changes, apply }: OpenedChanges,
  { choice, state, emit, quietMs }: HomeOptions,
): Promise<ExitCode> {
  const { runId } = changes
  const inspected = await changes.inspect()
  const { items } = inspected
  if (emit === undefined) await showChanges(io, changes, inspected)
  const isWhole = state.end?.outcome === 'completed' && state.heldBack === null
  const selection =
    choice === 'ask'
      ? await askSelection(io, changes, inspected, quietMs)
      : choice === true && isWhole
        ? ('all' as const)
        : null
  using stop = new StopOnSignal('is ignored')
  const summary = selection === null || items.length === 0 ? null : await apply(selection, stop)
  if (emit !== undefined) await emit({ source: 'summary', runId, changes: items.length, apply: summary })
  else if (summary !== null) printApplied(io, runId, summary)
  else if (items.length > 0) {
    const why = choice === true && !isWhole ? `, because ${whyNot(state)}` : ''
    io.stdout.write(`Nothing was applied${why}.\n${laterLines(nextCommands(io, runId))}`)
  }
  const isDone = items.length === 0 || choice === false || (summary !== null && isComplete(summary))
  return isDone ? exitCodes.completed : exitCodes.notAllApplied
}

function whyNot({ heldBack }: HomeOptions['state']): string {
  return heldBack === null ? 'the run did not complete' : `a hook blocked it: ${sanitizeLine(heldBack)}`
}

function laterLines({ diff, apply }: NextCommands): string {
  return `  review them: ${diff}\n  apply them:  ${apply}\n`
}

/** Each change with its diff; too many become a list. */
export async function showChanges(
  io: Io,
  changes: RunChanges,
  { items, history, aside }: InspectedChanges,
  bounds = afterRun,
): Promise<void> {
  const colors = colorsFor(io.stdout)
  if (items.length === 0) {
    io.stdout.write('Nothing was changed.\n')
    return
  }
  io.stdout.write(
    `\n${colors.bold(`${formatCount(items.length, 'change')} to ${sanitizeLine(changes.directory)}`)}\n`,
  )
  writeLines(io.stdout, historyLines(history, aside, colors))
  const entries = foldObjects(items, history)
  if (entries.length > bounds.maxDiffs) {
    writeLines(
      io.stdout,
      entries
        .slice(0, listedMax)
        .map((entry) => ('items' in entry ? objectsLine(entry, colors) : changeLine(entry, colors, history))),
    )
    if (entries.length > listedMax) io.stdout.write(`  … ${entries.length - listedMax} more\n`)
    io.stdout.write(`Diffs: ${nextCommands(io, changes.runId).diff}\n`)
    return
  }
  const folded = new Map<string, FoldedObjects>()
  for (const entry of entries)
    if ('items' in entry) for (const { path } of entry.items) folded.set(path, entry)
  let isCut = false
  const shown = new Set(items.map(({ path }) => path))
  for await (const item of changes.reviewWithDiffs()) {
    if (!shown.has(item.path)) continue
    const objects = folded.get(item.path)
    if (objects !== undefined) {
      if (objects.items[0]?.path === item.path) writeLines(io.stdout, [objectsLine(objects, colors)])
      continue
    }
    const { lines, rest } = diffLines(item, colors, bounds, history)
    writeLines(io.stdout, lines)
    isCut ||= rest > 0
  }
  if (isCut) io.stdout.write(`Full diff: ${nextCommands(io, changes.runId).diff}\n`)
}

/** What was applied, and everything that was not with its reason. */
export function printApplied(io: Io, runId: string, summary: ApplySummary): void {
  const colors = colorsFor(io.stdout)
  const next = nextCommands(io, runId)
  const { applied, parts, already, conflicts, failed, leftOut, stopped, notReached } = summary
  const lines = [colors.green(`Applied ${formatCount(applied.length, 'change')}${describeParts(parts)}.`)]
  if (already.length > 0)
    lines.push(`${formatCount(already.length, 'change was', 'changes were')} already in place.`)
  if (stopped !== undefined) {
    const rest = formatCount(notReached.length, 'change')
    lines.push(
      ...applied.slice(0, 50).map((path) => `  applied: ${sanitizeLine(path)}`),
      ...(applied.length > 50 ? [`  … ${applied.length - 50} more`] : []),
      colors.yellow(`Stopped before the end, ${rest} not applied: ${sanitizeLine(stopped.message)}`),
      `Continue: ${next.apply}`,
    )
  }
  const heldBack = leftOut.filter(({ reason }) => reason !== notChosen)
  const others = leftOut.length - heldBack.length
  lines.push(
    ...held('conflict', conflicts, colors),
    ...held('failed', failed, colors),
    ...held('left out', heldBack, colors),
  )
  if (conflicts.length > 0) lines.push(`To merge a path in conflict: ${next.merge}`)
  if (others > 0) lines.push(colors.dim(`  ${formatCount(others, 'more change')} not chosen`))
  if (leftOut.length > 0) lines.push(`To apply a path that was left out, name it: ${next.applyPath}`)
  if (applied.length > 0) lines.push(`Undo: ${next.undo}`)
  writeLines(io.stdout, lines)
}

function held(word: string, entries: readonly HeldBack[], colors: Colors): string[] {
  const lines = entries
    .slice(0, 50)
    .map(({ path, reason }) => colors.yellow(`  ${word}: ${sanitizeLine(path)}: ${sanitizeLine(reason)}`))
  return entries.length > 50 ? [...lines, `  … ${entries.length - 50} more`] : lines
}

/** Whether everything that was chosen is now on the host. */
export function isComplete({ conflicts, failed, leftOut, stopped }: ApplySummary): boolean {
  const isLeftOut = leftOut.some(({ reason }) => reason !== notChosen)
  return stopped === undefined && conflicts.length + failed.length === 0 && !isLeftOut
}
