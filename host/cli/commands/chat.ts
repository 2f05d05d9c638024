/**
 * `caisson chat`, and `caisson` alone in a terminal: a conversation. Each task is a run that continues the last one in
 * its kept VM, so journal, approvals, review and undo are those of runs. Commands of the conversation are commands of
 * the command line; it holds no authority of its own.
 */
import { randomUUID } from 'node:crypto'
import path from 'node:path'
import { CaissonError } from '#specs/errors.ts'
import type { Effort } from '#specs/protocol/plan.ts'
import type { Host } from '../../host.ts'
import type { RunSummary } from '../../journal/run-store.ts'
import { resolveFolders } from '../../state/folders.ts'
import { findAnyRun } from '../any-run.ts'
import { withEnvFile } from '../env-file.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io, printError } from '../io.ts'
import type { CommandInput } from '../options.ts'
import { LineHistory } from '../prompts/line-history.ts'
import { readTaskLine } from '../prompts/task-line.ts'
import { colorsFor } from '../render/colors.ts'
import { sanitizeLine } from '../render/sanitize.ts'
import { answerLines, costLine, modelLines, planOfRun } from './chat-views.ts'

export interface ChatFlags {
  readonly workspace?: string
  readonly addDir?: readonly string[]
  readonly model?: string
  readonly effort?: Effort
  readonly fallback?: readonly string[]
  readonly envFile?: string
  readonly continue?: string
}

export async function converse(
  given: Io,
  options: readonly string[],
  flags: ChatFlags,
  runCommand: CommandInput['runCommand'],
): Promise<ExitCode> {
  const io = await withEnvFile(given, flags.envFile)
  if (io.stdin.isTTY !== true || io.stdout.isTTY !== true)
    throw new CaissonError(
      'invalid_options',
      'a conversation needs a terminal on standard input and output',
      {
        remedy: 'give a task: caisson run "TASK"',
      },
    )
  const last =
    flags.continue === undefined
      ? undefined
      : await findLast(io, flags.continue, flags.workspace ?? io.directory)
  const conversation = new Conversation(io, options, { ...flags, last }, runCommand)
  // Ctrl-C is for the task that runs, which listens itself; between tasks it is a key.
  const ignore = (): void => undefined
  process.on('SIGINT', ignore)
  try {
    await conversation.hold()
  } finally {
    process.off('SIGINT', ignore)
  }
  return exitCodes.completed
}

/** Of this host or of its fleet. @throws {CaissonError} as `findAnyRun` */
async function findLast(io: Io, name: string, directory: string | undefined): Promise<string> {
  const at = { ...io, ...(directory === undefined ? {} : { directory }) }
  return (await findAnyRun(at, name)).runId
}

/** The settings of `-c` among options of `caisson run`. */
function settingsOf(options: readonly string[]): string[] {
  return options.flatMap((option, at) => {
    if (option === '-c' || option === '--config') return options.slice(at + 1, at + 2)
    const [, joined] = /^(?:--config=|-c)(.+)$/s.exec(option) ?? []
    return joined === undefined ? [] : [joined]
  })
}

/** What other programs with a prompt are left with. */
const leavingWords: ReadonlySet<string> = new Set(['exit', 'quit', '/exit'])

interface Verb {
  readonly name: string
  readonly usage: string
  readonly about: string
  run(words: string[], text: string): unknown
}

/** One conversation at a terminal. */
export class Conversation {
  readonly #io: Io
  readonly #host: Host
  readonly #options: readonly string[]
  readonly #folder: string
  readonly #runCommand: (argv: readonly string[]) => Promise<number>
  /** In the metadata of its runs. */
  readonly #id = randomUUID()
  #model: string | undefined
  #approve: string | undefined
  /** The last run, which the next task continues. */
  #last: string | undefined
  /** The last one that was to change something: a plan alone has nothing to show, apply or undo. */
  #lastWork: string | undefined
  /** The last plan that no task has run yet. */
  #planned: string | undefined
  #isOver = false

  constructor(
    io: Io,
    options: readonly string[],
    {
      workspace,
      addDir = [],
      model,
      effort,
      fallback = [],
      envFile,
      last,
    }: Omit<ChatFlags, 'continue'> & { readonly last?: string | undefined },
    runCommand: CommandInput['runCommand'],
  ) {
    this.#io = io
    this.#host = hostOf(io, settingsOf(options))
    this.#options = [
      ...addDir.map((folder) => `--add-dir=${folder}`),
      ...(effort === undefined ? [] : [`--effort=${effort}`]),
      ...fallback.map((id) => `--fallback=${id}`),
      ...(envFile === undefined ? [] : [`--env-file=${envFile}`]),
      ...options,
    ]
    this.#folder = path.resolve(workspace ?? io.directory ?? '.')
    this.#model = model
    this.#last = last
    this.#lastWork = last
    const within = { conversation: { told: new Set<string>() } }
    this.#runCommand = (argv) => runCommand(argv, within)
  }

  async hold(): Promise<void> {
    const history = await LineHistory.open(path.join(resolveFolders(this.#io.env).home, 'history'))
    this.#say(
      `Tasks run in one VM on a copy of ${sanitizeLine(this.#folder)}. /help lists commands; Ctrl-D leaves.`,
    )
    await this.#rejoin()
    const commands = this.#verbs.map(({ name }) => name)
    while (!this.#isOver) {
      const typed = await readTaskLine(this.#io, 'caisson> ', {
        history: history.entries,
        commands,
        folder: this.#folder,
      })
      if (typed.kind === 'left') break
      if (typed.kind === 'cleared') {
        if (typed.wasEmpty) this.#say('Ctrl-D or /quit leaves the conversation.')
        continue
      }
      if (typed.text.trim() === '') continue
      await history.add(typed.text)
      await this.#obey(typed.text)
    }
    const back = this.#last === undefined ? '' : ` Come back: caisson chat --continue ${this.#last}`
    this.#say(`Conversation ended.${back}`)
  }

  /**
   * Follows the task of a terminal that was closed, which a service or a host of its fleet still carries out: the next task
   * continues its end.
   */
  async #rejoin(): Promise<void> {
    if (this.#last === undefined) return
    try {
      const { shared } = await findAnyRun(this.#io, this.#last)
      const isAtWork =
        shared === undefined ? await this.#host.runs.isLive(this.#last) : shared.resource.end === null
      if (isAtWork) await this.#runCommand(['attach', this.#last])
    } catch (error) {
      printError(this.#io, error)
    }
  }

  async #obey(line: string): Promise<void> {
    try {
      if (leavingWords.has(line.trim())) this.#isOver = true
      else if (line.startsWith('/')) await this.#command(line)
      else await this.#task(line.trim())
    } catch (error) {
      printError(this.#io, error)
    }
  }

  async #command(line: string): Promise<void> {
    const [name = '', ...words] = line.trim().split(/\s+/)
    const verb = this.#verbs.find((one) => one.name === name)
    if (verb === undefined) {
      const shown = sanitizeLine(name, 40)
      this.#say(
        `There is no command ${shown}. /help lists them; begin a task such as “${shown}” with a blank.`,
      )
    } else await verb.run(words, line.trim().slice(name.length).trim())
  }

  /**
   * Runs the task as the next run of this conversation.
   * @param task absent: that of a plan
   * @param more options of this run alone
   */
  async #task(task: string | undefined, more: readonly string[] = []): Promise<void> {
    const before = this.#last
    await this.#runCommand([
      'run',
      '-w',
      this.#folder,
      ...(this.#model === undefined ? [] : ['-m', this.#model]),
      ...(this.#approve === undefined ? [] : ['--approve', this.#approve]),
      ...(before === undefined ? ['--keep-vm'] : ['--continue', before]),
      '--metadata',
      `conversation=${this.#id}`,
      ...this.#options,
      ...more,
      ...(task === undefined ? [] : ['--', task]),
    ])
    const [newest] = await this.#runs(1)
    this.#last = newest?.id ?? before
    const isPlan = more.includes('--plan-only')
    if (!isPlan) this.#lastWork = this.#last
    this.#planned = isPlan && this.#last !== before ? this.#last : undefined
    if (newest?.state.end?.outcome === 'cancelled' && !newest.keepsVm)
      this.#say('Its VM has ended. The next task gets a new VM, and the context of the tasks before it.')
  }

  readonly #verbs: readonly Verb[] = [
    {
      name: '/plan',
      usage: '/plan [TASK]',
      about: 'plan the task and change nothing; alone: show the last plan',
      run: (_, task) => (task === '' ? this.#showPlan() : this.#task(task, ['--plan-only'])),
    },
    {
      name: '/run',
      usage: '/run',
      about: 'run the plan that /plan made',
      run: () => this.#runPlan(),
    },
    {
      name: '/diff',
      usage: '/diff [PATH...]',
      about: 'show the changes of the last task',
      run: (words) => this.#ofLast((run) => ['workspace', 'diff', run, ...words]),
    },
    {
      name: '/apply',
      usage: '/apply [PATH...]',
      about: 'apply these changes; alone: all that are neither flagged nor in conflict',
      run: (words) =>
        this.#ofLast((run) => ['workspace', 'apply', run, ...(words.length === 0 ? ['--all'] : words)]),
    },
    {
      name: '/merge',
      usage: '/merge PATH',
      about: 'merge your file and that of the last task into a new file beside it',
      run: ([file]) => {
        if (file === undefined) this.#say('Expected: /merge PATH, a path in conflict.')
        else return this.#ofLast((run) => ['workspace', 'merge', run, file])
      },
    },
    {
      name: '/undo',
      usage: '/undo',
      about: 'undo what was applied of the last task',
      run: () => this.#ofLast((run) => ['workspace', 'undo', run]),
    },
    {
      name: '/model',
      usage: '/model [ID]',
      about: 'use this model from the next task on; alone: show it and what else is configured',
      run: async ([model]) => {
        const lines = await modelLines(this.#host, model ?? this.#model)
        this.#model = model ?? this.#model
        for (const line of model === undefined ? lines : lines.slice(0, 1)) this.#say(line)
      },
    },
    {
      name: '/cost',
      usage: '/cost',
      about: 'show the tokens and the cost of this conversation',
      run: async () => this.#say(costLine(await this.#runs(1_000))),
    },
    {
      name: '/approvals',
      usage: '/approvals [ask|all|none]',
      about:
        'how approvals of the next tasks are decided; alone: show it, answers given, what waits, permanent grants',
      run: ([mode]) => this.#approvals(mode),
    },
    {
      name: '/help',
      usage: '/help',
      about: 'this list',
      run: () => {
        for (const { usage, about } of this.#verbs) this.#say(`  ${usage.padEnd(27)}${about}`)
        this.#say(
          'Anything else is a task. Ctrl-C cancels the task that runs. Tab completes commands and @paths.',
        )
        this.#say('A line that begins with a blank is not kept in the history.')
      },
    },
    {
      name: '/quit',
      usage: '/quit',
      about: 'leave the conversation, as exit and Ctrl-D do',
      run: () => {
        this.#isOver = true
      },
    },
  ]

  async #ofLast(argv: (run: string) => string[]): Promise<void> {
    if (this.#lastWork === undefined) this.#say('No task has run yet.')
    else await this.#runCommand(argv(this.#lastWork))
  }

  async #showPlan(): Promise<void> {
    for (const line of await planOfRun(this.#host, this.#last)) this.#say(line)
    if (this.#planned !== undefined) this.#say('Run it: /run')
  }

  async #runPlan(): Promise<void> {
    if (this.#planned === undefined) this.#say('There is no plan to run. Make one: /plan TASK')
    else await this.#task(undefined, ['--plan-from', this.#planned])
  }

  async #approvals(mode: string | undefined): Promise<void> {
    if (mode !== undefined && !['ask', 'all', 'none'].includes(mode)) {
      this.#say('Expected: /approvals ask, /approvals all or /approvals none.')
      return
    }
    this.#approve = mode ?? this.#approve
    this.#say(`Approvals: ${this.#approve ?? 'as the options say (ask)'}`)
    if (mode !== undefined) return
    const answers = await answerLines(this.#host, await this.#runs(50), colorsFor(this.#io.stdout))
    for (const line of answers) this.#say(line)
    await this.#runCommand(['approvals', 'list'])
    // Without a number it lists what was answered for good.
    await this.#runCommand(['policy', 'revoke'])
  }

  /** The newest runs of this conversation. */
  async #runs(limit: number): Promise<readonly RunSummary[]> {
    const { runs } = await this.#host.runs.page({ filter: { metadata: { conversation: this.#id } }, limit })
    return runs
  }

  #say(line: string): void {
    this.#io.stdout.write(`${line}\n`)
  }
}
