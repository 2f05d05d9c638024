/**
 * Finds the region of a file most similar to a text that was not found, for the message of a failed edit. Pure;
 * bounded work.
 */

import { truncateMiddle } from '../../text/truncate.ts'

interface Region {
  /** From 1, both included. */
  readonly startLine: number
  readonly endLine: number
  readonly text: string
  /** Whether it differs from the sought text only in white space. */
  readonly whitespaceOnly: boolean
}

/** Maximum lines of the file that are compared. */
const MAX_LINES = 50_000
/** Maximum lines of the sought text that are compared. */
const MAX_SOUGHT_LINES = 200
/** Maximum positions for one sought line; more common lines (`}`) are ignored. */
const MAX_PLACES = 500
/** Maximum lines compared by letters when no line is equal. */
const MAX_COMPARED = 5_000
/** Similarity below which two lines count as different, as a share of letter pairs. */
const MIN_LIKENESS = 0.5
const MAX_REGION_LINES = 40

/** Maximum characters shown of a region. */
const MAX_SHOWN_CHARS = 4_000

/** A sentence about the nearest lines, and the lines with their numbers. */
export function nearestText(content: string, sought: string): string {
  const nearest = findNearestRegion(content.replace(/^\ufeff/, ''), sought)
  if (nearest === undefined) return ' Nothing in it is like it: read the file again before you change it.'
  const { startLine, endLine, text, whitespaceOnly } = nearest
  const why = whitespaceOnly ? ' It differs in white space alone.' : ''
  const lines = text.split('\n').map((line, at) => `${startLine + at}\t${line}`)
  const head = ` The nearest is lines ${startLine}-${endLine}.${why} Copy the text exactly from there, without the number and the tab before each line:\n`
  return head + truncateMiddle(lines.join('\n'), MAX_SHOWN_CHARS)
}

/** The most similar region; nothing if no line is similar. */
export function findNearestRegion(content: string, sought: string): Region | undefined {
  const lines = content.split(/\r?\n/, MAX_LINES)
  const wanted = trimBlankEdges(sought.split(/\r?\n/)).slice(0, MAX_SOUGHT_LINES)
  if (wanted.length === 0) return undefined
  const start = startByEqualLines(lines, wanted) ?? startByLikeness(lines, wanted)
  if (start === undefined) return undefined
  const end = Math.min(lines.length, start + Math.min(wanted.length, MAX_REGION_LINES))
  const region = lines.slice(start, end)
  return {
    startLine: start + 1,
    endLine: end,
    text: region.join('\n'),
    whitespaceOnly: squeeze(region) === squeeze(wanted),
  }
}

/** The position with most equal lines, ignoring white space and weighting longer lines higher. */
function startByEqualLines(lines: readonly string[], wanted: readonly string[]): number | undefined {
  const places = new Map<string, number[]>()
  for (const [index, line] of lines.entries()) {
    const key = squeeze([line])
    const known = places.get(key)
    if (known === undefined) places.set(key, [index])
    else if (known.length <= MAX_PLACES) known.push(index)
  }
  const scores = new Map<number, number>()
  for (const [index, line] of wanted.entries()) {
    const key = squeeze([line])
    const found = places.get(key) ?? []
    if (key === '' || found.length > MAX_PLACES) continue
    for (const place of found) {
      const start = Math.max(0, place - index)
      scores.set(start, (scores.get(start) ?? 0) + Math.min(key.length, 40))
    }
  }
  let best: number | undefined
  let bestScore = 0
  for (const [start, score] of scores) {
    if (score > bestScore || (score === bestScore && best !== undefined && start < best)) {
      best = start
      bestScore = score
    }
  }
  return best
}

/** The position of the line most similar to the longest sought line. */
function startByLikeness(lines: readonly string[], wanted: readonly string[]): number | undefined {
  const longest = wanted.reduce((left, right) => (right.trim().length > left.trim().length ? right : left))
  const pairs = letterPairs(longest)
  let best: number | undefined
  let bestLikeness = MIN_LIKENESS
  for (const [index, line] of lines.slice(0, MAX_COMPARED).entries()) {
    const likeness = shareOfPairs(pairs, letterPairs(line))
    if (likeness <= bestLikeness) continue
    best = index
    bestLikeness = likeness
  }
  return best === undefined ? undefined : Math.max(0, best - wanted.indexOf(longest))
}

function letterPairs(line: string): Map<string, number> {
  const text = line.trim().toLowerCase().slice(0, 200)
  const pairs = new Map<string, number>()
  for (let at = 0; at + 1 < text.length; at++) {
    const pair = text.slice(at, at + 2)
    pairs.set(pair, (pairs.get(pair) ?? 0) + 1)
  }
  return pairs
}

/** Dice's coefficient: 1 for equal, 0 for nothing in common. */
function shareOfPairs(left: ReadonlyMap<string, number>, right: ReadonlyMap<string, number>): number {
  let shared = 0
  let total = 0
  for (const [pair, count] of left) {
    shared += Math.min(count, right.get(pair) ?? 0)
    total += count
  }
  for (const count of right.values()) total += count
  return total === 0 ? 0 : (2 * shared) / total
}

function squeeze(lines: readonly string[]): string {
  return lines.join(' ').replace(/\s+/g, ' ').trim()
}

function trimBlankEdges(lines: readonly string[]): readonly string[] {
  const first = lines.findIndex((line) => line.trim() !== '')
  const last = lines.findLastIndex((line) => line.trim() !== '')
  return first === -1 ? [] : lines.slice(first, last + 1)
}
