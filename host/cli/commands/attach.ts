/**
 * `caisson attach`: watches a run of another process from its start on, and may answer its questions or cancel it. Leaving
 * is not cancelling: the run continues without us.
 */
import type { Writable } from 'node:stream'
import { errorMessage } from '#specs/errors.ts'
import type { WatchEnd } from '../../control/run-client.ts'
import { formatCount } from '../../files/format.ts'
import { findAnyRun } from '../any-run.ts'
import { openDesktopNotices } from '../desktop-notices.ts'
import { type ExitCode, exitCodeOfEnd, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { ProgressView } from '../render/progress.ts'
import { sanitizeLine } from '../render/sanitize.ts'
import type { Detail } from '../render/turn-lines.ts'
import { whereLine } from '../runs-of-fleet.ts'
import { type FollowedRun, type FollowInterruption, follow, followAsJson } from './follow.ts'
import { runsShow } from './runs.ts'
import { tellUnended, watchAnswers } from './watch-end.ts'

/** Within this time after the first Ctrl-C a second one cancels the run. */
const leaveAfterMs = 2_000
const howToLeave = 'To leave, press Ctrl-C; the run is not cancelled.'

/** A run of this host, or of its fleet. */
interface AttachedRun extends FollowedRun {
  readonly ended: Promise<WatchEnd>
}

type AttachFlags = { readonly json?: boolean } & Detail

export async function attach(io: Io, name: string, flags: AttachFlags): Promise<ExitCode> {
  const { runId, shared } = await findAnyRun(io, name)
  if (shared?.resource.end === null) {
    const run = shared.fleet.run(runId)
    const where = whereLine(shared.resource) ?? ''
    return await watch(io, run, flags, (say) => {
      run.say = say
      say(where)
      return { [Symbol.dispose]: () => undefined }
    })
  }
  const host = hostOf(io)
  const run = shared === undefined ? await host.attach(runId) : null
  if (run === null) return await showEnded(io, runId, flags)
  return await watch(io, run, flags, (say) => watchAnswers(host, runId, { say, leaving: howToLeave }))
}

/** @param begin looks after what there is to say of whoever carries the run out */
async function watch(
  io: Io,
  run: AttachedRun,
  flags: AttachFlags,
  begin: (say: (line: string) => void) => Disposable,
): Promise<ExitCode> {
  const host = hostOf(io)
  if (flags.json === true) {
    const say = (line: string) => void io.stderr.write(`${line}\n`)
    using _ = new Leaving(run, io.stdout, say)
    using __ = begin(say)
    // Without standard input it is still watched.
    await followAsJson(io, run, () => undefined)
    return await concludeAsJson(io, run)
  }
  using view = new ProgressView(io.stdout, { verbose: flags.verbose, reasoning: flags.reasoning })
  {
    const tell = (line: string) => view.lines([line])
    using leaving = new Leaving(run, io.stdout, tell)
    using _ = begin(tell)
    const isInteractive = io.stdin.isTTY === true && io.stdout.isTTY === true
    const tellLater = await openDesktopNotices(host, tell)
    await follow(io, view, run, leaving, {
      ...{ isInteractive, tellLater },
      folder: host.runs.paths(run.id).directory,
    })
  }
  const end = await run.ended
  view.end()
  if (end.kind === 'ended') {
    const { changes, proposedNotes } = view.state
    const where =
      changes === null || changes.entries === 0 ? '' : ` · changes: caisson workspace diff ${run.id}`
    io.stdout.write(`Run ${run.id} · journal head ${end.journalHead.slice(0, 16)}${where}\n`)
    if (proposedNotes.length > 0)
      io.stdout.write(
        `${formatCount(proposedNotes.length, 'note')} to review: caisson memory keep ${run.id}, or caisson memory drop ${run.id}\n`,
      )
  }
  return codeOf(io, run, end)
}

async function concludeAsJson(io: Io, run: AttachedRun): Promise<ExitCode> {
  const end = await run.ended
  if (end.kind === 'ended') {
    const { journalHead } = end
    await writeJsonLine(io.stdout, {
      source: 'summary',
      runId: run.id,
      outcome: end.end?.outcome ?? null,
      journalHead,
    })
  }
  return codeOf(io, run, end)
}

function codeOf(io: Io, run: AttachedRun, end: WatchEnd): ExitCode {
  return end.kind === 'ended' ? exitCodeOfEnd(end.end) : tellUnended(io, run.id, end)
}

/** A run that nobody carries out: what its journal says, and the code it ended with. */
async function showEnded(io: Io, runId: string, flags: { json?: boolean } & Detail): Promise<ExitCode> {
  const host = hostOf(io)
  await runsShow(io, runId, flags)
  const { state, status } = await host.runs.summary(runId)
  if (status === 'sleeping') return exitCodes.completed
  if (state.end === null)
    io.stderr.write(`caisson: ${runId} was interrupted: its host process ended before the run did\n`)
  return exitCodeOfEnd(state.end)
}

/** Ctrl-C leaves after a moment; again within it cancels the run, a third time ends it at once. Other signals leave. */
class Leaving implements Disposable, FollowInterruption {
  readonly #run: AttachedRun
  readonly #output: Writable
  readonly #say: (line: string) => void
  readonly #first = new AbortController()
  #count = 0
  #timer: NodeJS.Timeout | undefined
  readonly #onInterrupt = () => this.interrupt('Ctrl-C in an attached terminal')
  readonly #onEnd = () => void this.#run.detach()

  constructor(run: AttachedRun, output: Writable, say: (line: string) => void) {
    this.#run = run
    this.#output = output
    this.#say = say
    process.on('SIGINT', this.#onInterrupt)
    for (const name of ['SIGTERM', 'SIGHUP'] as const) process.on(name, this.#onEnd)
    output.on('error', this.#onEnd)
  }

  get signal(): AbortSignal {
    return this.#first.signal
  }

  interrupt(by: string): void {
    this.#count += 1
    clearTimeout(this.#timer)
    if (this.#count === 1) {
      this.#say(`Leaving in ${leaveAfterMs / 1_000} s; the run continues. Press Ctrl-C again to cancel it.`)
      this.#timer = setTimeout(() => void this.#run.detach(), leaveAfterMs)
      this.#first.abort()
    } else {
      this.#say(
        this.#count === 2
          ? 'Cancelling the run; press Ctrl-C again to stop it immediately.'
          : 'Stopping immediately.',
      )
      this.#run
        .cancel({ by, now: this.#count > 2 })
        .catch((error: unknown) => this.#say(`Not cancelled: ${sanitizeLine(errorMessage(error), 2_000)}`))
    }
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer)
    process.off('SIGINT', this.#onInterrupt)
    for (const name of ['SIGTERM', 'SIGHUP'] as const) process.off(name, this.#onEnd)
    this.#output.off('error', this.#onEnd)
  }
}
