/**
 * An agent that carries out goals. What is wrong with the options is thrown; whatever happens to a goal is a result with a
 * status.
 */
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { Host, loadTools, OptionsError } from '../host/index.ts'
import { WithoutVm } from '../host/without-vm.ts'
import type { GivenTools } from './goal.ts'
import { runInVm } from './in-vm.ts'
import {
  type AgentOptions,
  type AgentResult,
  checkAgentOptions,
  checkGoal,
  type GoalOptions,
  type OneGoalOptions,
  splitOptions,
} from './options.ts'
import { runWithoutVm } from './without-vm.ts'

export class Agent implements AsyncDisposable {
  readonly #options: AgentOptions
  readonly #host: Host
  readonly #withoutVm: WithoutVm
  readonly #closing = new AbortController()
  readonly #goals = new Set<Promise<unknown>>()
  readonly #warned = new Set<string>()
  #given: Promise<GivenTools> | undefined

  /** Starts nothing and reads no file. @throws {OptionsError} for an option that cannot be used */
  constructor(options: AgentOptions = {}) {
    this.#options = checkAgentOptions(options)
    const { config, overrides, env, notes } = this.#options
    const ofHost = {
      ...(config === undefined ? {} : { config }),
      ...(overrides === undefined ? {} : { overrides }),
      ...(env === undefined ? {} : { env }),
      ...(notes === undefined ? {} : { notes }),
    }
    this.#host = new Host(ofHost)
    this.#withoutVm = new WithoutVm(ofHost)
  }

  /** One goal by an agent of its own. @throws {OptionsError} for a goal or an option that cannot be used */
  static async run(goal: string, options: OneGoalOptions = {}): Promise<AgentResult> {
    const [ofAgent, ofGoal] = splitOptions(options)
    await using agent = new Agent(ofAgent)
    return await agent.run(goal, ofGoal)
  }

  /**
   * Carries a goal out. Resolves with status `error` where it cannot be reached; several goals may run at once.
   * @throws {OptionsError} for a goal or an option that cannot be used
   * @throws {CaissonError} `not_possible_now` when the agent is closed
   */
  async run(goal: string, options: GoalOptions = {}): Promise<AgentResult> {
    const checked = checkGoal(goal, options)
    const { vm = this.#options.vm ?? true } = checked
    if (vm && this.#options.provider !== undefined)
      throw new OptionsError('the options of the goal cannot be used', [
        { field: 'vm', message: 'a provider of the application needs vm: false; in the VM, name a server' },
      ])
    if (this.#closing.signal.aborted) throw new CaissonError('not_possible_now', 'the agent is closed')
    const result = this.#carryOut(goal, { ...checked, vm })
    this.#goals.add(result)
    try {
      return await result
    } finally {
      this.#goals.delete(result)
    }
  }

  /** Ends the goals under way with status `error`, and all that they use. */
  async close(): Promise<void> {
    this.#closing.abort(new CaissonError('cancelled', 'the agent was closed'))
    await Promise.allSettled(this.#goals)
    await this.#host.close()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  async #carryOut(
    goal: string,
    { vm, signal, timeoutMs, ...options }: GoalOptions & { readonly timeoutMs: number },
  ): Promise<AgentResult> {
    const late = new AbortController()
    const lateBy = () =>
      late.abort(new CaissonError('limit_reached', `the time limit of ${timeoutMs} ms is over`))
    const timer = setTimeout(lateBy, timeoutMs)
    const ends = AbortSignal.any([
      this.#closing.signal,
      late.signal,
      ...(signal === undefined ? [] : [signal]),
    ])
    try {
      ends.throwIfAborted()
      const given = await this.#openTools()
      const note = (notes: readonly string[]): void => this.#note(notes)
      const job = { goal, options, agent: this.#options, given, signal: ends, note }
      return vm === false ? await runWithoutVm(job, this.#withoutVm) : await runInVm(job, this.#host)
    } catch (error) {
      const cause: unknown = ends.aborted ? ends.reason : error
      return { status: 'error', output: errorMessage(cause), trace: [] }
    } finally {
      clearTimeout(timer)
    }
  }

  /** Loads a folder once; what failed is tried again with the next goal. */
  async #openTools(): Promise<GivenTools> {
    const { tools = {} } = this.#options
    if (typeof tools !== 'string' && !(tools instanceof URL)) return { tools, leftOut: new Map() }
    this.#given ??= this.#loadTools(tools)
    this.#given.catch(() => {
      this.#given = undefined
    })
    return await this.#given
  }

  async #loadTools(folder: string | URL): Promise<GivenTools> {
    const loaded = await loadTools(folder)
    const notes = loaded.leftOut.map(({ file, reason }) => `the tool of ${file} was left out: ${reason}`)
    this.#note(notes)
    const leftOut = loaded.leftOut.map(({ file, reason }) => [toolNameOf(file), reason] as const)
    return { tools: loaded.tools, leftOut: new Map(leftOut) }
  }

  #note(notes: readonly string[]): void {
    const fresh = notes.filter((note) => !this.#warned.has(note))
    for (const note of fresh) this.#warned.add(note)
    if (fresh.length === 0) return
    if (this.#options.onNotes !== undefined) this.#options.onNotes(fresh)
    else for (const note of fresh) process.emitWarning(note, 'CaissonWarning')
  }
}

function toolNameOf(file: string): string {
  return file.replace(/^.*[\\/]/, '').replace(/\.[^.]+$/, '')
}
