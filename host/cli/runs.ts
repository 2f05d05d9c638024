/** `caisson runs`: lists, shows and removes runs. */
import type { JournalEvent } from '#specs/protocol/event.ts'
import { initialRunState, reduceRun } from '#specs/protocol/run-state.ts'
import type { RunSummary } from '../runs/store.ts'
import { coloursFor } from '../ui/colours.ts'
import { linesOf } from '../ui/event-lines.ts'
import { writeLines } from '../ui/fit.ts'
import { foreignLine } from '../ui/foreign.ts'
import { formatCount } from '../ui/format.ts'
import { unknownCallLines } from '../ui/hook-lines.ts'
import { type ExitCode, exitCodes } from './exit-codes.ts'
import { hostOf, type Io } from './io.ts'
import { writeJsonLine } from './json-lines.ts'

export async function runsList(io: Io, flags: { json?: boolean }): Promise<ExitCode> {
  const runs = await hostOf(io).runs.list()
  for (const run of runs) {
    if (flags.json === true) await writeJsonLine(io.stdout, run)
    else writeLines(io.stdout, [listLine(run)])
  }
  if (runs.length === 0 && flags.json !== true)
    io.stdout.write('no runs yet; start one: caisson run "TASK"\n')
  return exitCodes.completed
}

function listLine({ runId, startedAt, prompt, state, problem, isLive, keepsVm }: RunSummary): string {
  const when = new Date(startedAt).toISOString().slice(0, 16).replace('T', ' ')
  const word = problem !== undefined ? 'damaged' : (state.end?.outcome ?? (isLive ? 'running' : 'not ended'))
  const changes =
    state.changes === null
      ? ''
      : ` · ${formatCount(state.changes.entries, 'change')}${state.applied === null ? '' : `, ${state.applied} applied`}`
  const waiting = state.proposedNotes.length
  const notes = waiting === 0 ? '' : ` · ${formatCount(waiting, 'note')} to keep or drop`
  return `${runId}  ${when}  ${word.padEnd(9)} ${foreignLine(prompt, 60)}${changes}${keepsVm ? ' · VM kept' : ''}${notes}${problem === undefined ? '' : ` · ${foreignLine(problem)}`}`
}

export async function runsShow(io: Io, name: string, flags: { json?: boolean }): Promise<ExitCode> {
  const { runs } = hostOf(io)
  const paths = await runs.find(name)
  const events = await runs.read(paths.runId)
  const colours = coloursFor(io.stdout)
  let state = initialRunState
  if (flags.json !== true) io.stdout.write(`${paths.runId}  ${foreignLine(paths.directory)}\n`)
  for (const item of events) {
    const before = state
    state = reduceRun(state, item)
    if (flags.json === true) await writeJsonLine(io.stdout, item)
    else writeLines(io.stdout, linesOf(item, state, colours, before))
  }
  if (flags.json !== true) {
    const { isLive } = (await runs.list()).find(({ runId }) => runId === paths.runId) ?? { isLive: false }
    if (!isLive) writeLines(io.stdout, unknownCallLines(state, colours))
    writeLines(io.stdout, headLines(events))
  }
  return exitCodes.completed
}

/** The head that was printed as the run ended is another one once something was applied, undone or decided. */
function headLines(events: readonly JournalEvent[]): string[] {
  const now = `${events.length} events, journal whole, head ${events.at(-1)?.hash ?? 'none'}`
  const at = events.findLastIndex(({ event }) => event.type === 'run-end')
  const end = events[at]
  return end === undefined || at === events.length - 1
    ? [now]
    : [now, `  ${at + 1} events at the end of the run, head ${end.hash}`]
}

export async function runsRemove(io: Io, names: string[]): Promise<ExitCode> {
  const { runs } = hostOf(io)
  for (const name of names) {
    const { runId } = await runs.find(name)
    await runs.remove(runId)
    io.stdout.write(`removed ${runId}\n`)
  }
  return exitCodes.completed
}
