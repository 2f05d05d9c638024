/** `caisson run`: starts a run, shows it, puts approvals before the person, and brings the changes home. */

import path from 'node:path'
import { CaissonError } from '#specs/errors.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import type { Host, RunOptions } from '../../host.ts'
import { type CarriedRun, followInFleet, followStarted, ownRun, startInService } from '../carried-run.ts'
import { openDesktopNotices } from '../desktop-notices.ts'
import { type ExitCode, exitCodeOfEnd, exitCodes } from '../exit-codes.ts'
import { Interrupts } from '../interrupts.ts'
import { hostOf, type Io } from '../io.ts'
import { type Example, withFlags } from '../options.ts'
import { askRules } from '../prompts/ignore-rules-prompt.ts'
import { captureInput } from '../prompts/terminal-input.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { nextCommands } from '../render/next-commands.ts'
import { Notices } from '../render/notices.ts'
import { ProgressView } from '../render/progress.ts'
import { sanitizeLine } from '../render/sanitize.ts'
import { checkOutputFile, giveAnswer } from './answer-output.ts'
import { type OpenedChanges, openChanges, ownChanges } from './changes-of-run.ts'
import { runDetached, tellStarted } from './detach.ts'
import { follow, followAsJson } from './follow.ts'
import { reviewAndApply } from './review-changes.ts'
import { keepNotes, noteChoice, reviewNotes } from './review-notes.ts'
import { nameLast, optionsOf, type RunFlags } from './run-flags.ts'
import { readTaskInput } from './task-input.ts'
import { tellUnended, watchAnswers } from './watch-end.ts'
import { openRunPage, type RunPage } from './web-page.ts'

export async function runTask(
  io: Io,
  task: string | undefined,
  flags: RunFlags,
  example: Example | undefined,
): Promise<ExitCode> {
  const isGiven = flags.planFrom !== undefined
  const input = await readTaskInput(io, {
    task,
    isJson: flags.json === true,
    isOptional: isGiven || example !== undefined,
  })
  const isExample = input.task === undefined && !isGiven
  const prompt = input.task ?? (isExample ? example?.task : undefined) ?? ''
  if (prompt.trim() === '' && !isGiven)
    throw new CaissonError('invalid_options', 'no task given; expected: caisson run "TASK"')
  const output = flags.output === undefined ? undefined : await checkOutputFile(flags.output)
  const place = flags.workspace ?? (isExample ? example?.workspace : undefined)
  const options = {
    ...(await optionsOf(io, prompt, await nameLast(io, flags, place))),
    ...(place === undefined ? {} : { workspace: place }),
    ...(input.context === undefined ? {} : { context: input.context }),
  }
  if (flags.detach === true) return await detach(io, await withAcceptedRules(io, options, flags), flags)
  await using page =
    flags.web === true
      ? await openRunPage(io, hostOf(io, flags.config), place ?? io.directory ?? process.cwd())
      : undefined
  const { code, end } = await carryOut(
    io,
    options,
    { ...flags, answerFile: output },
    beginNew(io, flags, page),
  )
  // Who cancelled the run, or closed the terminal, waits for nothing.
  if (end !== null && end.outcome !== 'cancelled')
    await page?.stay(options.approvals?.interactive === true || flags.apply !== undefined)
  return code
}

/** Shows a run from its start to its end, and gives out its answer. @param flags `answerFile`: of {@link checkOutputFile} */
export async function carryOut(
  io: Io,
  options: RunOptions,
  flags: ShowFlags & { readonly answerFile: string | undefined },
  begin: Begin,
): Promise<Ended> {
  // What a quiet run has to say beside its answer goes to standard error, questions included.
  const shown = flags.quiet === true ? { ...io, stdout: io.stderr } : io
  const ended =
    flags.json === true
      ? await runJson(io, options, flags, begin)
      : await runShown(shown, options, flags, begin)
  await giveAnswer(io, ended.end, { output: flags.answerFile, quiet: flags.quiet })
  return ended
}

/** Leaves the run to the service, or to a background process of its own. */
async function detach(io: Io, options: RunOptions, flags: RunFlags): Promise<ExitCode> {
  if (flags.fleet === true && flags.apply === true)
    throw new CaissonError('invalid_options', '--apply is not possible with --fleet and --detach', {
      remedy: 'leave out --detach, or apply the changes later: caisson workspace apply RUN --all',
    })
  // The service applies nothing by itself.
  const place = { ...flags, here: flags.here === true || flags.apply === true }
  const told = {
    ...options,
    approvals: { ...options.approvals, interactive: true },
    onNotes: (notes: readonly string[]) =>
      io.stderr.write(notes.map((note) => `${withFlags(note)}\n`).join('')),
  }
  const started = await startInService(io, hostOf(io, flags.config), told, place)
  if (started === undefined) return await runDetached(io, options, flags)
  tellStarted(io, started.runId)
  return exitCodes.completed
}

interface Ended {
  readonly code: ExitCode
  readonly end: RunState['end']
}

/** Whether somebody can answer the questions of a run that this process continues. */
export function hasPerson(io: Io, { json = false }: Pick<ContinueFlags, 'json'>): boolean {
  return json || (io.stdin.isTTY === true && io.stdout.isTTY === true)
}

/** `caisson runs resume` of a run whose host process ended: this process continues it. */
export async function continueRun(io: Io, runId: string, flags: ContinueFlags): Promise<ExitCode> {
  const begin: Begin = async (host, { approvals = {}, onProgress, onNotes }) =>
    ownRun(
      await host.resume(runId, {
        takeOver: flags.takeOver === true,
        fromBeginning: flags.restart === true,
        interactive: approvals.interactive === true,
        ...(onProgress === undefined ? {} : { onProgress }),
        ...(onNotes === undefined ? {} : { onNotes }),
      }),
    )
  const options = {
    prompt: '',
    approvals: { interactive: hasPerson(io, flags) },
    files: { acceptIgnoreRules: true },
  }
  const { code } =
    flags.json === true ? await runJson(io, options, flags, begin) : await runShown(io, options, flags, begin)
  return code
}

/** What of the flags is about showing a run and bringing its changes home. */
type ShowFlags = Pick<
  RunFlags,
  'json' | 'apply' | 'verbose' | 'reasoning' | 'quiet' | 'config' | 'acceptMemory'
>
export interface ContinueFlags extends Pick<ShowFlags, 'json' | 'apply' | 'verbose' | 'reasoning'> {
  /** Ends the process that has the run first. */
  readonly takeOver?: boolean
  /** Starts the run again from its beginning. */
  readonly restart?: boolean
}

/** Starts a run, or continues one. */
export type Begin = (host: Host, options: RunOptions) => Promise<CarriedRun>

/** In the service of this user where it takes the run, else in this process. */
function beginNew(io: Io, flags: RunFlags, page: RunPage | undefined): Begin {
  return async (host, given) => {
    // Somebody can answer on the page.
    const options =
      page === undefined ? given : { ...given, approvals: { ...given.approvals, interactive: true } }
    const isHere = page?.isOwn === true && flags.fleet !== true
    const started = isHere ? undefined : await startInService(io, host, options, flags)
    const carried =
      started === undefined
        ? ownRun(await host.run(options))
        : started.isOfFleet
          ? await followInFleet(io, started.runId)
          : await followStarted(host, started.runId)
    await page?.tell(carried.run.id)
    return carried
  }
}

/** For people: progress on stdout, questions where a terminal is. */
async function runShown(io: Io, given: RunOptions, flags: ShowFlags, begin: Begin): Promise<Ended> {
  const host = hostOf(io, flags.config)
  const isInteractive = given.approvals?.interactive === true
  const options = await withAcceptedRules(io, given, flags)
  using view = new ProgressView(io.stdout, {
    isQuiet: flags.quiet === true,
    verbose: flags.verbose,
    reasoning: flags.reasoning,
    inConversation: io.conversation !== undefined,
  })
  using notices = new Notices((lines) => view.lines(lines.map(withFlags)))
  const carried = await startShown(io, (options) => begin(host, options), options, view, notices)
  const { run } = carried
  {
    const onFirst = () => view.lines(['Cancelling; press Ctrl-C again to stop immediately.'])
    using interrupts = new Interrupts(carried, io.stdout, onFirst, carried.leave)
    using _ = watchCarried(host, carried, (line) => view.lines([line]))
    await follow(io, view, run, interrupts, {
      isInteractive,
      tellLater: await openDesktopNotices(host, (line) => view.lines([line])),
      // Nothing on the screen says what a key would do.
      takesMessages: flags.quiet !== true,
      folder: host.runs.paths(run.id).directory,
    })
  }
  const over = await carried.over
  if (over.kind !== 'ended') {
    view.end()
    return { code: tellUnended(io, run.id, over), end: null }
  }
  const { state, journalHead } = over
  view.end(state)
  if (flags.quiet !== true) io.stdout.write(`Run ${run.id} · journal head ${journalHead.slice(0, 16)}\n`)
  if (flags.quiet !== true && options.plan?.only === true && state.end?.outcome === 'completed')
    io.stdout.write(
      `Run the plan: ${io.conversation === undefined ? howToCarryOut(run.id, options.workspace) : '/run'}\n`,
    )
  const asked = isInteractive && state.end?.outcome !== 'cancelled'
  const review = () =>
    carried.hear === undefined
      ? reviewNotes(io, host, run.id, { choice: noteChoice(flags.acceptMemory, asked, state), state })
      : undefined
  if (state.changes === null) {
    await review()
    return { code: exitCodeOfEnd(state.end), end: state.end }
  }
  const choice = flags.apply ?? (asked ? 'ask' : 'nobody')
  const isSilent = flags.quiet === true && (choice !== 'ask' || state.changes.entries === 0)
  const home = await reviewAndApply(io, await changesOf(io, host, carried), {
    choice,
    state,
    ...(isSilent ? { emit: async () => undefined } : {}),
  })
  if (isSilent && home !== exitCodes.completed)
    io.stdout.write(`caisson: changes were not applied; to see them: ${nextCommands(io, run.id).diff}\n`)
  await review()
  return { code: state.end?.outcome === 'completed' ? home : exitCodeOfEnd(state.end), end: state.end }
}

/** Asks a person at the terminal about ignore rules that earlier runs changed. */
async function withAcceptedRules(io: Io, given: RunOptions, { config }: ShowFlags): Promise<RunOptions> {
  if (given.approvals?.interactive !== true || given.files?.acceptIgnoreRules === true) return given
  const accepts = await askRules(io, hostOf(io, config), given.workspace)
  return accepts ? { ...given, files: { ...given.files, acceptIgnoreRules: true } } : given
}

/**
 * Keys that are typed before the run is there say nothing to anybody, and do not stand in the status line;
 * then they are for who follows it.
 */
async function startShown(
  io: Io,
  begin: (options: RunOptions) => Promise<CarriedRun>,
  options: RunOptions,
  view: ProgressView,
  notices: Notices,
): Promise<CarriedRun> {
  using keys = options.approvals?.interactive === true ? captureInput(io.stdin, () => undefined) : undefined
  const run = await begin({
    ...options,
    onProgress: (text) => view.hint(text),
    onNotes: (notes) => notices.add(untold(io, notes)),
  })
  keys?.handOver()
  notices.hold()
  return run
}

/** The notices that this conversation has not shown before. */
function untold({ conversation }: Io, notes: readonly string[]): readonly string[] {
  if (conversation === undefined) return notes
  const { told } = conversation
  const fresh = notes.filter((note) => !told.has(note))
  for (const note of fresh) told.add(note)
  return fresh
}

/** For programs: one JSON object a line. */
async function runJson(io: Io, options: RunOptions, flags: ShowFlags, begin: Begin): Promise<Ended> {
  const host = hostOf(io, flags.config)
  const carried = await begin(host, {
    ...options,
    onProgress: (text) => io.stderr.write(`${sanitizeLine(text)}\n`),
    onNotes: (notes) => io.stderr.write(notes.map((note) => `${withFlags(note)}\n`).join('')),
  })
  const { run, leave } = carried
  {
    const say = (line: string) => void io.stderr.write(`${line}\n`)
    const onFirst = () => say('cancelling; interrupt again to stop immediately')
    using _ = new Interrupts(carried, io.stdout, onFirst, leave)
    using __ = watchCarried(host, carried, say)
    await followAsJson(io, run, () => carried.denyRest())
  }
  const over = await carried.over
  if (over.kind !== 'ended') return { code: tellUnended(io, run.id, over), end: null }
  const { state, journalHead } = over
  const emit = (event: object) => writeJsonLine(io.stdout, { ...event, journalHead })
  if (state.proposedNotes.length > 0 && noteChoice(flags.acceptMemory, false, state) === 'keep') {
    const decided = await keepNotes(io, host, run.id)
    if (decided !== null) await emit({ source: 'notes', runId: run.id, ...decided })
  }
  if (state.changes === null) return { code: exitCodeOfEnd(state.end), end: state.end }
  const opened = await changesOf(io, host, carried)
  const home = await reviewAndApply(io, opened, { choice: flags.apply ?? 'nobody', state, emit })
  return { code: state.end?.outcome === 'completed' ? home : exitCodeOfEnd(state.end), end: state.end }
}

/** Says when the service that has the run does not answer. */
function watchCarried(host: Host, { run, leave, hear }: CarriedRun, say: (line: string) => void): Disposable {
  hear?.(say)
  if (leave === undefined || hear !== undefined) return { [Symbol.dispose]: () => undefined }
  return watchAnswers(host, run.id, { say, leaving: 'To leave it to the service, close this terminal.' })
}

async function changesOf(io: Io, host: Host, { run, hear }: CarriedRun): Promise<OpenedChanges> {
  return hear === undefined ? await ownChanges(host, run.id) : await openChanges(io, run.id)
}

/** The command that carries a plan out where it was made. */
function howToCarryOut(runId: string, workspace: string | undefined): string {
  const elsewhere = workspace !== undefined && path.resolve(workspace) !== process.cwd()
  return `caisson run${elsewhere ? ` -w ${quote(workspace)}` : ''} --plan-from ${runId}`
}

function quote(word: string): string {
  return /^[\w./-]+$/.test(word) ? word : `'${sanitizeLine(word).replaceAll("'", "'\\''")}'`
}
