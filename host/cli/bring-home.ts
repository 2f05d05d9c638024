/** After a run: shows its changes, lets the person choose or follows the flag, applies, and says what came of it. */
import { isCancel, multiselect, select } from '@clack/prompts'
import type { Host } from '../host.ts'
import type { RunChanges } from '../runs/changes.ts'
import { type Colours, coloursFor } from '../ui/colours.ts'
import { foreignLine } from '../ui/foreign.ts'
import { formatCount } from '../ui/format.ts'
import { changeLine, diffLines } from '../ui/review-lines.ts'
import {
  type ApplySummary,
  type HeldBack,
  holdBack,
  type ReviewItem,
  type Selection,
} from '../workspace/index.ts'
import { type ExitCode, exitCodes } from './exit-codes.ts'
import type { Io } from './io.ts'

/** `ask` shows the changes and asks; true applies all that is safe; false applies nothing. */
export type ApplyChoice = 'ask' | boolean

/** Diffs beyond this many are left to `caisson workspace diff`. */
const shownMaxDiffs = 30

/** @param emit for `--json`: given, nothing is printed for people */
export async function bringHome(
  io: Io,
  host: Host,
  runId: string,
  choice: ApplyChoice,
  emit?: (event: unknown) => Promise<void>,
): Promise<ExitCode> {
  const changes = await host.changes(runId)
  const items = changes.review()
  if (items.length === 0) {
    if (emit === undefined) io.stdout.write('Nothing was changed.\n')
    return exitCodes.completed
  }
  if (emit === undefined) showChanges(io, changes, items)
  const selection = choice === 'ask' ? await ask(io, items) : choice ? ('all' as const) : null
  if (selection === null) {
    if (emit === undefined)
      io.stdout.write(
        `Nothing was applied. Later: caisson workspace diff ${runId}, caisson workspace apply ${runId}\n`,
      )
    return exitCodes.notAllApplied
  }
  const summary = await changes.apply(selection)
  if (emit === undefined) printApplied(io, runId, summary)
  else await emit({ source: 'summary', runId, apply: summary })
  return isComplete(summary) ? exitCodes.completed : exitCodes.notAllApplied
}

/** The list, then the diffs of the first changes. */
export function showChanges(
  io: Io,
  changes: RunChanges,
  items: readonly ReviewItem[],
  maxDiffs = shownMaxDiffs,
): void {
  const colours = coloursFor(io.stdout)
  io.stdout.write(
    `\n${colours.bold(`${formatCount(items.length, 'change')} to ${foreignLine(changes.directory)}`)}\n`,
  )
  if (items.length > maxDiffs) {
    for (const item of items) io.stdout.write(`${changeLine(item, colours)}\n`)
    io.stdout.write(`Diffs: caisson workspace diff ${changes.runId}\n`)
    return
  }
  for (const item of changes.reviewWithDiffs()) io.stdout.write(`${diffLines(item, colours).join('\n')}\n`)
}

async function ask(io: Io, items: readonly ReviewItem[]): Promise<Selection | null> {
  const streams = { input: io.stdin, output: io.stdout }
  const held = items.filter((item) => holdBack(item) !== undefined).length
  const choice = await select({
    message: 'Apply the changes to your files?',
    options: [
      {
        value: 'all',
        label:
          held === 0 ? 'all' : `all but ${held} that ${held === 1 ? 'is' : 'are'} flagged or in conflict`,
      },
      { value: 'some', label: 'some; let me choose' },
      { value: 'none', label: 'none for now' },
    ],
    ...streams,
  })
  if (isCancel(choice) || choice === 'none') return null
  if (choice === 'all') return 'all'
  const offered = items.filter((item) => item.change !== 'unsupported' && item.standing.kind !== 'conflict')
  const chosen = await multiselect({
    message: 'Space chooses, Enter applies',
    options: offered.map((item) => ({
      value: item.path,
      label: foreignLine(item.path, 200),
      ...hintOf(item),
    })),
    initialValues: offered.filter((item) => holdBack(item) === undefined).map(({ path }) => path),
    required: false,
    ...streams,
  })
  if (isCancel(chosen) || chosen.length === 0) return null
  return { paths: chosen }
}

function hintOf(item: ReviewItem): { hint: string } {
  return { hint: item.flagged === undefined ? item.change : `flagged: ${foreignLine(item.flagged)}` }
}

/** What was applied, and everything that was not with its reason. */
export function printApplied(io: Io, runId: string, summary: ApplySummary): void {
  const colours = coloursFor(io.stdout)
  const { applied, already, conflicts, failed, leftOut, unknown } = summary
  const lines = [colours.green(`Applied ${formatCount(applied.length, 'change')}.`)]
  if (already.length > 0) lines.push(`${formatCount(already.length, 'change')} were already so.`)
  lines.push(
    ...held('conflict', conflicts, colours),
    ...held('failed', failed, colours),
    ...held('left out', leftOut, colours),
  )
  lines.push(...unknown.map((path) => colours.yellow(`  no change has the path ${foreignLine(path)}`)))
  if (applied.length > 0) lines.push(`Take it back: caisson workspace undo ${runId}`)
  io.stdout.write(`${lines.join('\n')}\n`)
}

function held(word: string, entries: readonly HeldBack[], colours: Colours): string[] {
  const lines = entries
    .slice(0, 50)
    .map(({ path, reason }) => colours.yellow(`  ${word}: ${foreignLine(path)}: ${foreignLine(reason)}`))
  return entries.length > 50 ? [...lines, `  … ${entries.length - 50} more`] : lines
}

/** Whether everything that the run changed is now on the host. */
export function isComplete({ conflicts, failed, leftOut, unknown }: ApplySummary): boolean {
  return conflicts.length + failed.length + leftOut.length + unknown.length === 0
}
