/** What `npm run eval` does: lists tasks, runs an evaluation, compares two. */
import { mkdtemp, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { exitCodeOf, exitCodes } from '../../host/cli/exit-codes.ts'
import { withFlags } from '../../host/cli/options.ts'
import { toPlainJson } from '../../host/cli/render/json-lines.ts'
import { sanitizeBlock, sanitizeLine } from '../../host/cli/render/sanitize.ts'
import { CaissonError, Host } from '../../host/index.ts'
import { errorMessage } from '../../specs/errors.ts'
import { attemptTask } from './attempt.ts'
import type { Attempt } from './attempts.ts'
import { help, type Order, type RunOrder, readOrder } from './command-line.ts'
import { type Evaluated, evaluate } from './evaluate.ts'
import { describeHeader, findDifference, type Header, headerFor } from './header.ts'
import { renderComparison } from './render.ts'
import { compareAttempts } from './report.ts'
import { offlineWarning, ResultFolder, readResults } from './result-folder.ts'
import { chooseTasks } from './suite.ts'

export interface EvalIo {
  readonly out: (text: string) => void
  /** One line, for people. */
  readonly tell: (text: string) => void
  readonly env: Readonly<Record<string, string | undefined>>
  /** That of whoever calls, for paths. */
  readonly directory: string
  /** Cancels the attempts under way. */
  readonly signal: AbortSignal
  /** Ends their VMs at once. */
  readonly endNow: AbortSignal
}

/** @returns the exit code, with the meanings of `caisson` */
export async function runEval(argv: readonly string[], io: EvalIo): Promise<number> {
  try {
    return await carryOut(readOrder(argv, io.directory), io)
  } catch (error) {
    const isUsage = error instanceof RangeError
    const [first = '', ...rest] = withFlags(errorMessage(error)).split('\n')
    io.tell(sanitizeLine(first))
    if (rest.length > 0) io.tell(sanitizeBlock(rest.join('\n')))
    return isUsage ? exitCodes.usage : exitCodeOf(error)
  }
}

async function carryOut(order: Order, io: EvalIo): Promise<number> {
  switch (order.kind) {
    case 'help':
      io.out(help)
      return exitCodes.completed
    case 'list':
      listTasks(order, io)
      return exitCodes.completed
    case 'compare':
      compare(order.a, order.b, order.json, io)
      return exitCodes.completed
    case 'run':
      return await runOrder(order, io)
  }
}

function listTasks(order: Order & { readonly kind: 'list' }, io: EvalIo): void {
  const rows = chooseTasks(order).map(({ name, difficulty, tags }) => ({ name, difficulty, tags }))
  if (order.json) {
    io.out(toPlainJson(rows))
    return
  }
  for (const { name, difficulty, tags } of rows)
    io.out(`${name.padEnd(26)} ${difficulty.padEnd(7)} ${tags.join(', ')}\n`)
}

function compare(a: string, b: string, json: boolean, io: EvalIo): void {
  const [left, right] = [readResults(a), readResults(b)]
  const comparison = compareAttempts(left.attempts, right.attempts)
  if (json) {
    io.out(toPlainJson({ headers: [left.header, right.header], ...comparison }))
    return
  }
  const notes = [
    ...(left.header.tasksSha256 === right.header.tasksSha256
      ? []
      : ['The tasks or checks differ between A and B; the difference may come from them.', '']),
    ...(comparison.a.tasks === 0 ? ['No task has attempts in both.', ''] : []),
    ...([left, right].some(({ header }) => header.provider === 'offline') ? [offlineWarning, ''] : []),
  ]
  io.out(
    [`A: ${describeHeader(left.header)}`, '', `B: ${describeHeader(right.header)}`, '', ...notes, ''].join(
      '\n',
    ),
  )
  io.out(renderComparison(comparison))
}

async function runOrder(order: RunOrder, io: EvalIo): Promise<number> {
  const { config, from } = order
  await using host = new Host({ env: io.env, ...(config === undefined ? {} : { config }) })
  await using results =
    from.resume === undefined ? await beginResults(host, from, io) : await continueResults(host, from.resume)
  const { header, folder } = results
  io.tell(`results in ${sanitizeLine(folder)}`)
  if (header.provider === 'offline') io.tell(offlineWarning)
  const evaluated = await runMissing(host, order, results, io)
  const { markdown, json } = await results.report()
  io.out(order.json ? json : markdown)
  return tellEnd(evaluated, folder, io)
}

type Beginning = Exclude<RunOrder['from'], { readonly resume: string }>

async function beginResults(host: Host, from: Beginning, io: EvalIo): Promise<ResultFolder> {
  const { model, effort, tries } = from
  const tasks = chooseTasks(from).map(({ name }) => name)
  const header = await currentHeader(host, {
    modelOption: model ?? null,
    effort: effort ?? null,
    tasks,
    tries,
  })
  const date = header.startedAt.replaceAll(':', '-').replace(/\..*/, '')
  const folder = path.resolve(io.directory, from.out ?? path.join('eval-results', date))
  return await ResultFolder.create(folder, header)
}

async function continueResults(host: Host, folder: string): Promise<ResultFolder> {
  const results = await ResultFolder.open(folder)
  const now = await currentHeader(host, results.header)
  const difference = findDifference(results.header, now)
  if (difference === undefined) return results
  await results[Symbol.asyncDispose]()
  throw new CaissonError(
    'invalid_options',
    `the evaluation cannot be continued: its ${difference} was another one`,
    {
      remedy: 'start a new evaluation, or restore what it was started with',
    },
  )
}

/** @param wanted effort null: that of the configuration */
async function currentHeader(
  host: Host,
  wanted: Pick<Header, 'modelOption' | 'effort' | 'tasks' | 'tries'>,
): Promise<Header> {
  const { modelOption, effort, tasks, tries } = wanted
  const choice = await host.provider(modelOption === null ? {} : { model: modelOption })
  return await headerFor({
    ...{ provider: choice.name, model: choice.model === '' ? null : choice.model, modelOption },
    ...{ effort: effort ?? (await host.config()).effort ?? null, tasks, tries },
  })
}

async function runMissing(
  host: Host,
  order: RunOrder,
  results: ResultFolder,
  io: EvalIo,
): Promise<Evaluated> {
  const { header, attempts } = results
  const tasks = chooseTasks({ only: header.tasks, tags: [] })
  const { modelOption, effort } = header
  const given = {
    ...(modelOption === null ? {} : { model: modelOption }),
    ...(effort === null ? {} : { effort }),
  }
  const ownMaxUsd = (await host.config()).limits.maxCostUsd
  const total = tasks.length * header.tries
  const folder = await realpath(await mkdtemp(path.join(tmpdir(), 'caisson-eval-')))
  try {
    if (attempts.length < total)
      await host.image({ onProgress: (text) => io.tell(sanitizeLine(text)), signal: io.signal })
    return await evaluate({
      ...{ tasks, tries: header.tries, parallel: order.parallel, done: attempts, signal: io.signal },
      ...(order.maxCostUsd === undefined ? {} : { maxCostUsd: order.maxCostUsd }),
      attemptOne: async ({ task, attempt }, maxUsd) => {
        const maxCostUsd = Math.min(maxUsd ?? Number.POSITIVE_INFINITY, ownMaxUsd ?? Number.POSITIVE_INFINITY)
        const limits = Number.isFinite(maxCostUsd) ? { limits: { maxCostUsd } } : {}
        return await attemptTask(host, task, {
          ...{ attempt, folder: path.join(folder, `${task.name}-${attempt}`), run: { ...given, ...limits } },
          ...{ signal: io.signal, endNow: io.endNow },
        })
      },
      onAttempt: async (attempt) => {
        await results.add(attempt)
        io.tell(`${attempts.length}/${total} ${describeAttempt(attempt)}`)
      },
      onLost: ({ task, attempt }, why) => io.tell(`${task.name} ${attempt}: not run: ${sanitizeLine(why)}`),
    })
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

function describeAttempt({ task, attempt, passed, problems, end, turns, durationMs }: Attempt): string {
  const verdict = passed ? 'passed' : `not passed (${end})`
  const problem = passed ? '' : `: ${sanitizeLine(problems[0] ?? '', 200)}`
  return `${task} ${attempt}: ${verdict}, ${turns} turns, ${(durationMs / 1_000).toFixed(1)} s${problem}`
}

function tellEnd({ stop, lost }: Evaluated, folder: string, io: EvalIo): number {
  const why = {
    complete: lost === 0 ? undefined : `${lost} attempts could not run`,
    interrupted: 'interrupted',
    cost: 'stopped at the bound on cost',
    lost: 'stopped: one run after another could not start or was lost',
  }[stop]
  if (why === undefined) return exitCodes.completed
  io.tell(`${why}; to continue: npm run eval -- --resume ${sanitizeLine(folder)}`)
  return stop === 'interrupted'
    ? exitCodes.cancelled
    : stop === 'cost'
      ? exitCodes.failed
      : exitCodes.environment
}
