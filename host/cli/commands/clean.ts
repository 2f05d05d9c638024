/** `caisson clean`: shows what Caisson keeps on disk, and frees what is safe to free on request. */

import { CaissonError } from '#specs/errors.ts'
import { freeKept } from '../../clean/free.ts'
import { listKept } from '../../clean/inventory.ts'
import { type CleanOptions, isFreed, type Kept, type KeptKind, keptKinds } from '../../clean/kept.ts'
import { formatAge, formatBytes, formatCount } from '../../files/format.ts'
import { prepareFolders } from '../../state/folders.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { type Colors, colorsFor } from '../render/colors.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'

interface CleanFlags {
  readonly yes?: boolean
  readonly all?: boolean
  readonly runs?: boolean
  readonly olderThan?: number
  readonly json?: boolean
}

const DAY_MS = 24 * 60 * 60 * 1000
const DEFAULT_RUN_AGE_MS = 30 * DAY_MS
/** Of one kind in a terminal; the rest is reported as a sum. */
const SHOWN = 8

const titles: Readonly<Record<KeptKind, string>> = {
  image: 'Images',
  agent: 'Agents',
  template: 'Templates',
  download: 'Downloads',
  probe: 'Results of machine checks',
  leftover: 'Unfinished: in progress, or left over by processes that ended',
  moments: 'Disks of ended runs, from which they can be forked',
  run: 'Runs',
  unknown: 'Folders that this version did not make: remove them yourself if you do not need them',
}

export async function clean(io: Io, flags: CleanFlags): Promise<ExitCode> {
  if (flags.olderThan !== undefined && flags.runs !== true)
    throw new CaissonError('invalid_options', '--older-than requires --runs')
  const { folders } = hostOf(io)
  await prepareFolders(folders)
  const options: CleanOptions = {
    all: flags.all === true,
    now: Date.now(),
    ...(flags.runs === true ? { runsOlderThanMs: flags.olderThan ?? DEFAULT_RUN_AGE_MS } : {}),
  }
  const entries = await listKept({ folders, now: options.now })
  const chosen = entries.filter((entry) => isFreed(entry, options))
  const { freed, failed } =
    flags.yes === true ? await freeKept(folders, chosen) : { freed: undefined, failed: [] }
  if (flags.json === true) {
    await writeJsonLine(io.stdout, {
      entries: entries.map((entry) => ({ ...entry, isChosen: chosen.includes(entry) })),
      bytes: sizeOf(entries),
      chosenBytes: sizeOf(chosen),
      freedBytes: freed === undefined ? null : sizeOf(freed),
      failed: failed.map(({ kept, reason }) => ({ path: kept.path, reason })),
    })
  } else {
    const colors = colorsFor(io.stdout)
    for (const line of listing(entries, options, colors)) io.stdout.write(`${line}\n`)
    for (const { kept, reason } of failed)
      io.stderr.write(`caisson: ${sanitizeLine(kept.path)} was not removed: ${sanitizeLine(reason)}\n`)
    for (const line of summary(entries, options, freed, colors)) io.stdout.write(`${line}\n`)
  }
  return failed.length === 0 ? exitCodes.completed : exitCodes.failed
}

function listing(entries: readonly Kept[], options: CleanOptions, colors: Colors): string[] {
  return keptKinds.flatMap((kind) => {
    const rows = entries.filter((entry) => entry.kind === kind)
    if (rows.length === 0) return []
    const head = `${colors.bold(titles[kind])}  ${colors.dim(`${formatCount(rows.length, 'entry', 'entries')}, ${formatBytes(sizeOf(rows))}`)}`
    const isSum = kind === 'download'
    return [head, ...(isSum ? sums(rows, 'in total', options, colors) : shown(rows, options, colors)), '']
  })
}

/** What goes first, so that it is seen; a long rest as one row. */
function shown(rows: readonly Kept[], options: CleanOptions, colors: Colors): string[] {
  const ordered = rows.toSorted((a, b) => Number(isFreed(b, options)) - Number(isFreed(a, options)))
  const [first, rest] = [ordered.slice(0, SHOWN), ordered.slice(SHOWN)]
  return [
    ...first.map((entry) => row(shortName(entry), entry, options, colors)),
    ...(rest.length === 0 ? [] : sums(rest, 'more', options, colors)),
  ]
}

/** One row for what goes and one for what stays. */
function sums(rows: readonly Kept[], word: string, options: CleanOptions, colors: Colors): string[] {
  return [true, false].flatMap((goes) => {
    const some = rows.filter((entry) => isFreed(entry, options) === goes)
    const [example] = some
    if (example === undefined) return []
    const { note: _, ...first } = example
    const usedAt = some.reduce((oldest, entry) => Math.min(oldest, entry.usedAt), example.usedAt)
    return [row(`${some.length} ${word}`, { ...first, bytes: sizeOf(some), usedAt }, options, colors)]
  })
}

function row(name: string, entry: Kept, options: CleanOptions, colors: Colors): string {
  const cells = [
    name.padEnd(16),
    formatBytes(entry.bytes).padStart(8),
    formatAge(options.now - entry.usedAt).padStart(10),
  ]
  const goes = isFreed(entry, options)
  const word = goes ? colors.yellow('remove'.padEnd(7)) : stateWords[entry.state].padEnd(7)
  const note = entry.note === undefined ? '' : `  ${colors.dim(sanitizeLine(entry.note, 60))}`
  return `  ${cells.join('  ')}  ${word}${note}`.trimEnd()
}

const stateWords: Readonly<Record<Kept['state'], string>> = {
  busy: 'in use',
  current: 'current',
  old: 'old',
  ended: 'kept',
  unknown: 'unknown',
}

function shortName({ kind, name }: Kept): string {
  return sanitizeLine(
    kind === 'run' || kind === 'moments' ? name.replace(/^run-/, '').slice(0, 12) : name.slice(0, 16),
  )
}

function summary(
  entries: readonly Kept[],
  options: CleanOptions,
  freed: readonly Kept[] | undefined,
  colors: Colors,
): string[] {
  if (freed !== undefined) return [colors.bold(`Freed ${formatBytes(sizeOf(freed))}.`)]
  const chosen = entries.filter((entry) => isFreed(entry, options))
  const total = `Caisson keeps ${formatBytes(sizeOf(entries))}`
  if (chosen.length === 0)
    return [`${total}; nothing to remove${options.all ? '' : ' without --all or --runs'}.`]
  const again = ['caisson clean', options.all ? '--all' : '', runsWords(options), '--yes'].filter(Boolean)
  return [
    `${total}; ${colors.bold(formatBytes(sizeOf(chosen)))} can be removed. Nothing was removed.`,
    `To remove it: ${again.join(' ')}`,
  ]
}

function runsWords({ runsOlderThanMs }: CleanOptions): string {
  if (runsOlderThanMs === undefined) return ''
  const hours = runsOlderThanMs / 3_600_000
  return `--runs --older-than ${hours % 24 === 0 ? `${hours / 24}d` : `${hours}h`}`
}

function sizeOf(entries: readonly Kept[]): number {
  return entries.reduce((sum, { bytes }) => sum + bytes, 0)
}
