/** `caisson runs compare` and `merge`: the changes of several runs side by side, and in one change set. */
import { CaissonError } from '#specs/errors.ts'
import type { ComparedChange, RunComparison } from '../../compare/compare-runs.ts'
import type { Take } from '../../compare/merge-runs.ts'
import { formatCount, formatDuration } from '../../files/format.ts'
import type { Host, TestedRun } from '../../host.ts'
import { type AnyRun, findAnyRun } from '../any-run.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { StopOnSignal } from '../interrupts.ts'
import { hostOf, type Io } from '../io.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'

interface CompareFlags {
  readonly test?: string
  readonly testTimeout?: number
  readonly json?: boolean
}

export async function runsCompare(io: Io, names: string[], flags: CompareFlags): Promise<ExitCode> {
  const host = hostOf(io)
  const { runIds } = await findAll(io, names)
  const comparison = await host.compare(runIds)
  const tests =
    flags.test === undefined ? undefined : await testAll(host, runIds, flags.test, flags.testTimeout)
  if (flags.json === true) await writeJsonLine(io.stdout, { ...comparison, ...(tests && { tests }) })
  else for (const line of comparisonLines(comparison, tests)) io.stdout.write(`${line}\n`)
  return tests?.every(({ exitCode }) => exitCode === 0) === false ? exitCodes.failed : exitCodes.completed
}

interface MergeFlags {
  readonly take?: string[]
  readonly json?: boolean
}

export async function runsMerge(io: Io, names: string[], flags: MergeFlags): Promise<ExitCode> {
  const host = hostOf(io)
  const { runIds, fleet } = await findAll(io, names)
  const takes = await Promise.all((flags.take ?? []).map(async (text) => await readTake(io, text)))
  const merged = await (fleet?.merge(runIds, takes) ?? host.merge(runIds, takes))
  const { runId, conflicts } = merged
  if (flags.json === true) await writeJsonLine(io.stdout, merged)
  else if (runId === undefined) {
    io.stdout.write(`Nothing was merged: ${formatCount(conflicts.length, 'conflict')}.\n`)
    for (const { path, reason } of conflicts)
      io.stdout.write(`  ${sanitizeLine(path)}: ${sanitizeLine(reason, 1_000)}\n`)
    io.stdout.write('Decide each with --take RUN:PATH, or --take RUN:PATH:HUNK,HUNK for some of its hunks.\n')
  } else {
    io.stdout.write(`${runId} has ${formatCount(merged.entries, 'change')} of ${runIds.length} runs\n`)
    for (const path of merged.merged) io.stdout.write(`  merged line by line: ${sanitizeLine(path)}\n`)
    io.stdout.write(
      `Review it: caisson workspace diff ${runId}\nApply it: caisson workspace apply ${runId} --all\n`,
    )
  }
  return runId === undefined ? exitCodes.notAllApplied : exitCodes.completed
}

/** What they changed is on this machine afterwards. @returns `fleet`: it has one of them. Absent: they are of this host */
async function findAll(io: Io, names: readonly string[]) {
  const found: AnyRun[] = []
  for (const name of names) found.push(await findAnyRun(io, name, { mayBeCopy: true }))
  for (const { runId, shared } of found) await shared?.fleet.fetchChanges(runId)
  return { runIds: found.map(({ runId }) => runId), fleet: found.find(({ shared }) => shared)?.shared?.fleet }
}

/** `RUN:PATH` or `RUN:PATH:1,3`. */
async function readTake(io: Io, text: string): Promise<Take> {
  const [, run, path, numbers] = /^([^:]+):(.+?)(?::(\d+(?:,\d+)*))?$/s.exec(text) ?? []
  if (run === undefined || path === undefined)
    throw new CaissonError(
      'invalid_options',
      `--take ${JSON.stringify(text)}: expected RUN:PATH, or RUN:PATH:HUNK,HUNK`,
    )
  const hunks = numbers?.split(',').map(Number)
  const { runId } = await findAnyRun(io, run, { mayBeCopy: true })
  return { runId, path, ...(hunks === undefined ? {} : { hunks }) }
}

/** One after the other, so that their times can be compared. */
async function testAll(
  host: Host,
  runIds: readonly string[],
  command: string,
  timeoutMs: number | undefined,
): Promise<TestedRun[]> {
  using stop = new StopOnSignal('ends the process')
  const tests: TestedRun[] = []
  const limit = timeoutMs === undefined ? {} : { timeoutMs }
  for (const runId of runIds)
    tests.push(await host.testRun(runId, command, { signal: stop.signal, ...limit }))
  return tests
}

const letters = 'ABCDEFGHIJKLMNOP'
const columnMinWidth = 14

/** A column for each run; equal letters in a row are equal contents. */
export function comparisonLines(
  { runs, paths }: RunComparison,
  tests: readonly TestedRun[] | undefined,
): string[] {
  const width = Math.min(60, Math.max(10, ...paths.map(({ path }) => sanitizeLine(path, 60).length)))
  const rows: readonly (readonly [name: string, cells: readonly string[]])[] = [
    ['path', runs.map((_, index) => `[${index + 1}]`)],
    ...paths.map(({ path, runs: cells }) => [sanitizeLine(path, 60), cells.map(cellOf)] as const),
    ['requests', runs.map(({ requests }) => String(requests))],
    ...(tests === undefined ? [] : [['test', tests.map(testCell)] as const]),
  ]
  const columnWidth = Math.max(
    columnMinWidth,
    ...rows.flatMap(([, cells]) => cells.map(({ length }) => length)),
  )
  return [
    ...runs.map(({ runId, outcome, summary }, index) => {
      const said = summary === '' ? '' : `: ${sanitizeLine(summary, 100)}`
      return `[${index + 1}] ${runId}  ${sanitizeLine(outcome)}${said}`
    }),
    '',
    ...rows.map(([name, cells]) =>
      `${name.padEnd(width)}  ${cells.map((cell) => cell.padEnd(columnWidth)).join('  ')}`.trimEnd(),
    ),
    '',
    `${paths.filter(({ isSame }) => isSame).length} of ${formatCount(paths.length, 'path')} are the same in all; equal letters are equal contents`,
    ...(tests ?? [])
      .filter(({ exitCode }) => exitCode !== 0)
      .map(
        ({ runId, stdout, stderr }) => `${runId}: ${sanitizeLine(lastLine(stderr) || lastLine(stdout), 200)}`,
      ),
  ]
}

const signs = {
  added: 'new',
  modified: 'changed',
  deleted: 'deleted',
  mode: 'mode',
  unsupported: 'left out',
} as const

function cellOf(change: ComparedChange | null): string {
  if (change === null) return '-'
  const { added, removed, content } = change
  const lines = added === undefined && removed === undefined ? '' : ` +${added ?? 0} -${removed ?? 0}`
  return `${letters[content - 1] ?? content} ${signs[change.change]}${lines}`
}

function testCell({ exitCode, timedOut, durationMs }: TestedRun): string {
  const word = timedOut ? 'time limit' : exitCode === 0 ? 'passed' : `exit ${exitCode ?? '?'}`
  return `${word} ${formatDuration(durationMs)}`
}

function lastLine(text: string): string {
  return text.trimEnd().split('\n').at(-1) ?? ''
}
