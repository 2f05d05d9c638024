/**
 * `caisson chat`, and `caisson` alone in a terminal: a conversation. Each task is a run that continues the last one in
 * its kept VM, so journal, approvals, review and undo are those of runs. Commands of the conversation are commands of
 * the command line; it holds no authority of its own.
 */
import { randomUUID } from 'node:crypto'
import path from 'node:path'
import { CaissonError } from '#specs/errors.ts'
import { addUsage, noUsage } from '#specs/protocol/task.ts'
import { formatCost } from '../../files/format.ts'
import type { Host } from '../../host.ts'
import type { RunSummary } from '../../journal/run-store.ts'
import { resolveFolders } from '../../state/folders.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { findRun, hostOf, type Io, printError } from '../io.ts'
import type { CommandInput } from '../options.ts'
import { LineHistory } from '../prompts/line-history.ts'
import { readTaskLine } from '../prompts/task-line.ts'
import { sanitizeLine } from '../render/sanitize.ts'

export interface ChatFlags {
  readonly workspace?: string
  readonly addDir?: readonly string[]
  readonly model?: string
  readonly continue?: string
}

export async function converse(
  io: Io,
  options: readonly string[],
  flags: ChatFlags,
  runCommand: CommandInput['runCommand'],
): Promise<ExitCode> {
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
      : await findRun(io, flags.continue, flags.workspace ?? io.directory)
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
  readonly #runCommand: CommandInput['runCommand']
  /** In the metadata of its runs. */
  readonly #id = randomUUID()
  #model: string | undefined
  #approve: string | undefined
  /** The last run, which the next task continues. */
  #last: string | undefined
  /** The last one that was to change something: a plan alone has nothing to show, apply or undo. */
  #lastWork: string | undefined
  #isOver = false

  constructor(
    io: Io,
    options: readonly string[],
    {
      workspace,
      addDir = [],
      model,
      last,
    }: Omit<ChatFlags, 'continue'> & { readonly last?: string | undefined },
    runCommand: CommandInput['runCommand'],
  ) {
    this.#io = io
    this.#host = hostOf(io)
    this.#options = [...addDir.map((folder) => `--add-dir=${folder}`), ...options]
    this.#folder = path.resolve(workspace ?? io.directory ?? '.')
    this.#model = model
    this.#last = last
    this.#lastWork = last
    this.#runCommand = runCommand
  }

  async hold(): Promise<void> {
    const history = await LineHistory.open(path.join(resolveFolders(this.#io.env).home, 'history'))
    this.#say(
      `Tasks run in one VM on a copy of ${sanitizeLine(this.#folder)}. /help lists commands; Ctrl-D leaves.`,
    )
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

  async #obey(line: string): Promise<void> {
    try {
      if (line.startsWith('/')) await this.#command(line)
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

  /** Runs the task as the next run of this conversation. @param more options of this run alone */
  async #task(task: string, more: readonly string[] = []): Promise<void> {
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
      '--',
      task,
    ])
    const [newest] = await this.#runs(1)
    this.#last = newest?.id ?? before
    if (!more.includes('--plan-only')) this.#lastWork = this.#last
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
      name: '/undo',
      usage: '/undo',
      about: 'undo what was applied of the last task',
      run: () => this.#ofLast((run) => ['workspace', 'undo', run]),
    },
    {
      name: '/model',
      usage: '/model [ID]',
      about: 'use this model from the next task on; alone: show it',
      run: ([model]) => {
        this.#model = model ?? this.#model
        this.#say(`Model: ${this.#model === undefined ? 'the configured one' : sanitizeLine(this.#model)}`)
      },
    },
    {
      name: '/cost',
      usage: '/cost',
      about: 'show the tokens and the cost of this conversation',
      run: () => this.#showCost(),
    },
    {
      name: '/approvals',
      usage: '/approvals [ask|all|none]',
      about:
        'how approvals of the next tasks are decided; alone: show it, what waits for an answer, and permanent grants',
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
      about: 'leave the conversation',
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
    const plan = this.#last === undefined ? null : (await this.#host.runs.fold(this.#last)).state.plan
    if (plan === null) {
      this.#say('There is no plan yet.')
      return
    }
    this.#say(`Plan: ${sanitizeLine(plan.goal, 200)}`)
    plan.steps.forEach(({ title }, at) => {
      this.#say(`  ${at + 1}. ${sanitizeLine(title, 200)}`)
    })
  }

  async #showCost(): Promise<void> {
    let usage = noUsage
    let cost: number | null = null
    const runs = await this.#runs(1_000)
    for (const { state } of runs) {
      usage = addUsage(usage, state.usage)
      if (state.costUsd !== null) cost = (cost ?? 0) + state.costUsd
    }
    const price = cost === null ? 'no price is configured' : formatCost(cost)
    this.#say(
      `Tasks: ${runs.length} · tokens: ${usage.inputTokens} in, ${usage.outputTokens} out · cost: ${price}`,
    )
  }

  async #approvals(mode: string | undefined): Promise<void> {
    if (mode !== undefined && !['ask', 'all', 'none'].includes(mode)) {
      this.#say('Expected: /approvals ask, /approvals all or /approvals none.')
      return
    }
    this.#approve = mode ?? this.#approve
    this.#say(`Approvals: ${this.#approve ?? 'as the options say (ask)'}`)
    if (mode !== undefined) return
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
