/** `caisson replay`: runs a recorded run again without a network, and says where it first was another. */
import { formatCount } from '../../files/format.ts'
import type { ReplayDifference, ReplayResult } from '../../runs/replay/replay.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { Interrupts } from '../interrupts.ts'
import { findRun, hostOf, type Io } from '../io.ts'
import { writeLines } from '../render/fit.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { ProgressView } from '../render/progress.ts'
import { sanitizeBlock, sanitizeLine } from '../render/sanitize.ts'
import type { Detail } from '../render/turn-lines.ts'
import { follow, followAsJson } from './follow.ts'

export async function replay(io: Io, name: string, flags: { json?: boolean } & Detail): Promise<ExitCode> {
  const result = await (flags.json === true ? replayJson(io, name) : replayShown(io, name, flags))
  return result.isSame ? exitCodes.completed : exitCodes.failed
}

async function replayShown(io: Io, name: string, flags: Detail): Promise<ReplayResult> {
  const host = hostOf(io)
  const runId = await findRun(io, name)
  using view = new ProgressView(io.stdout, { verbose: flags.verbose, reasoning: flags.reasoning })
  const replayed = await host.replay(runId, { onProgress: (text) => view.hint(text) })
  const { run } = replayed
  {
    const onFirst = () => view.lines(['Cancelling; press Ctrl-C again to stop immediately.'])
    using interrupts = new Interrupts(run, io.stdout, onFirst)
    const folder = host.runs.paths(run.id).directory
    await follow(io, view, run, interrupts, { isInteractive: false, folder })
  }
  view.end(await run.ended)
  const result = await replayed.result()
  writeLines(io.stdout, resultLines(result))
  return result
}

async function replayJson(io: Io, name: string): Promise<ReplayResult> {
  const host = hostOf(io)
  const runId = await findRun(io, name)
  const onProgress = (text: string) => io.stderr.write(`${sanitizeLine(text)}\n`)
  const replayed = await host.replay(runId, { onProgress })
  {
    using _ = new Interrupts(replayed.run, io.stdout, () =>
      io.stderr.write('cancelling; interrupt again to stop immediately\n'),
    )
    await followAsJson(io, replayed.run, () => undefined)
  }
  const result = await replayed.result()
  await writeJsonLine(io.stdout, { source: 'replay', ...result })
  return result
}

function resultLines({ runId, replays, difference, events, isCutOff }: ReplayResult): string[] {
  const until = isCutOff ? ', up to where it was ended from outside' : ' and the changes'
  const compared = `${formatCount(events, 'event')} of ${replays}${until}`
  if (difference === null) return [`Replay ${runId} · no difference: ${compared}`]
  return [`Replay ${runId} · the first difference, among ${compared}:`, ...differenceLines(difference)]
}

function differenceLines({
  line,
  replayLine,
  agentPath,
  stepId,
  type,
  field,
  ...texts
}: ReplayDifference): string[] {
  const places = [
    ...(line === null ? [] : [`line ${line}`]),
    ...(replayLine === null ? [] : [`line ${replayLine} of the replay`]),
    ...(agentPath === undefined ? [] : [sanitizeLine(agentPath)]),
    ...(stepId === undefined ? [] : [`step ${sanitizeLine(stepId)}`]),
    `${type}${field === '' ? '' : ` ${sanitizeLine(field)}`}`,
  ]
  return [
    `  ${places.join(' · ')}`,
    '  expected:',
    ...textLines(texts.expected),
    '  seen:',
    ...textLines(texts.seen),
  ]
}

function textLines(text: string): string[] {
  if (text === '') return ['  (nothing)']
  return sanitizeBlock(text).split('\n')
}
