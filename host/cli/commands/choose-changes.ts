/** Which changes of a run are applied: read from the words of a command, or chosen by the person at the terminal. */
import { CaissonError } from '#specs/errors.ts'
import type { InspectedChanges, ReviewedChange, RunChanges } from '../../runs/changes.ts'
import { type ChangeSelection, holdBack, type ReviewItem } from '../../workspace/index.ts'
import type { Io } from '../io.ts'
import { choose, chooseSeveral, type PromptIo } from '../prompts/ask.ts'
import { settleKeys } from '../prompts/terminal-input.ts'
import { foldObjects, nameObjects } from '../render/review-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'

/** More changes than this have no choice by hunk: their diffs are not read before the question. */
const DIFFED_MAX = 30
const NUMBER_MAX = 10_000
const hunkNames = '(?:[0-9a-f]{12}|\\d{1,5}(?:-\\d{1,5})?)'
const fileAndHunks = new RegExp(`^(.+):(${hunkNames}(?:,${hunkNames})*)$`, 's')

/**
 * The selection that words such as `a.txt` and `b.txt:2,4-6` name.
 * @throws {CaissonError} `invalid_options` for a range that is none
 */
export async function readSelection(words: readonly string[], changes: RunChanges): Promise<ChangeSelection> {
  const paths: string[] = []
  const hunks = new Map<string, (number | string)[]>()
  const mayBeHunks = words.some((word) => fileAndHunks.test(word))
  // A path may look like a file with hunks.
  const known = new Set(mayBeHunks ? (await changes.review()).map(({ path }) => path) : [])
  for (const word of words) {
    const path = word.replace(/\/+$/, '')
    const [, file, names] = known.has(path) ? [] : (fileAndHunks.exec(word) ?? [])
    if (file === undefined || names === undefined) paths.push(path)
    else {
      const name = file.replace(/^\.\//, '')
      hunks.set(name, [...(hunks.get(name) ?? []), ...names.split(',').flatMap(readHunks)])
    }
  }
  return hunks.size === 0 ? { paths } : { paths, hunks: Object.fromEntries(hunks) }
}

function readHunks(name: string): (number | string)[] {
  if (/^[0-9a-f]{12}$/.test(name)) return [name]
  const [from = 0, to = from] = name.split('-').map(Number)
  if (from < 1 || to < from || to > NUMBER_MAX)
    throw new CaissonError('invalid_options', `"${name}" names no hunks`, {
      remedy: 'write numbers from 1, such as 2 or 4-6',
    })
  return Array.from({ length: to - from + 1 }, (_, at) => from + at)
}

/** Asks the person; null for nothing. Keys that were typed before the question do not answer it. */
export async function askSelection(
  io: Io,
  changes: RunChanges,
  { items, history }: InspectedChanges,
  quietMs: number | undefined,
): Promise<ChangeSelection | null> {
  if (items.length === 0) return null
  // Before the quiet time: no key of it answers.
  const divisible = await findDivisible(changes, items)
  const { signal } = new AbortController()
  const prompt = {
    input: io.stdin,
    output: io.stdout,
    signal,
    ...(quietMs === undefined ? {} : { quietMs }),
  }
  await settleKeys(prompt)
  const held = items.filter((item) => holdBack(item) !== undefined).length
  const choice = await choose(prompt, 'Apply the changes to your files?', [
    {
      value: 'all',
      key: 'y',
      label: held === 0 ? 'all' : `all but ${held} that ${held === 1 ? 'is' : 'are'} flagged or in conflict`,
    },
    { value: 'some', label: divisible.size === 0 ? 'some; choose paths' : 'some; choose paths and hunks' },
    { value: 'none', key: 'n', label: 'none for now' },
  ])
  if (choice === null || choice === 'none') return null
  if (choice === 'all') return 'all'
  const offered = items.filter((item) => item.change !== 'unsupported' && item.state.kind !== 'conflict')
  const chosen = await chooseSeveral(
    prompt,
    'Apply which?',
    foldObjects(offered, history).map((entry) =>
      'items' in entry
        ? { value: entry.items, label: `${nameObjects(entry)} (${noteOfSome(entry.items)})` }
        : { value: [entry], label: `${sanitizeLine(entry.path, 200)} (${noteOf(entry)})` },
    ),
  )
  if (chosen === null || chosen.length === 0) return null
  return await askHunks(
    prompt,
    chosen.flat().map(({ path }) => path),
    divisible,
  )
}

/** Files with more than one hunk, by path. */
async function findDivisible(
  changes: RunChanges,
  items: readonly ReviewItem[],
): Promise<ReadonlyMap<string, ReviewedChange>> {
  const found = new Map<string, ReviewedChange>()
  if (items.length > DIFFED_MAX) return found
  for await (const change of changes.reviewWithDiffs())
    if (change.hunks.length > 1 && change.state.kind === 'clear') found.set(change.path, change)
  return found
}

async function askHunks(
  prompt: PromptIo,
  paths: readonly string[],
  divisible: ReadonlyMap<string, ReviewedChange>,
): Promise<ChangeSelection | null> {
  const whole: string[] = []
  const hunks = new Map<string, readonly string[]>()
  for (const path of paths) {
    const change = divisible.get(path)
    if (change === undefined) {
      whole.push(path)
      continue
    }
    const labels = describeHunks(change)
    const chosen = await chooseSeveral(
      prompt,
      `Apply which hunks of ${sanitizeLine(path, 200)}?`,
      change.hunks.map(({ id }, at) => ({ value: id, label: labels[at] ?? '' })),
    )
    if (chosen === null) return null
    if (chosen.length === change.hunks.length) whole.push(path)
    else if (chosen.length > 0) hunks.set(path, chosen)
  }
  if (whole.length + hunks.size === 0) return null
  // What was not chosen stays out, though the folder it lies in was.
  return { paths: whole, exact: true, hunks: Object.fromEntries(hunks) }
}

/** `line 12, +3 -1: first changed line` for each hunk. */
function describeHunks({ diff, hunks }: ReviewedChange): string[] {
  const bodies = (diff ?? '').split(/^@@ .*\n/m).slice(1)
  return hunks.map(({ oldStart }, at) => {
    const lines = bodies[at]?.split('\n') ?? []
    const count = (mark: string) => lines.filter((line) => line.startsWith(mark)).length
    const first = lines.find((line) => /^[+-]/.test(line)) ?? ''
    return `line ${oldStart}, +${count('+')} -${count('-')}: ${sanitizeLine(first.replaceAll('\t', '  '), 60)}`
  })
}

/** Objects that are shown as one have one reason, if any. */
function noteOfSome(items: readonly ReviewItem[]): string {
  const [first] = items
  const flagged = items.find((item) => item.flagged !== undefined)
  return first === undefined ? '' : noteOf(flagged ?? first)
}

function noteOf(item: ReviewItem): string {
  return item.flagged === undefined ? item.change : `flagged: ${sanitizeLine(item.flagged)}`
}
