/**
 * The sub-agents of one run: started in order within limits on number and parallelism, each with a part of the budget
 * and its own view; merged one after the other. Failures are returned, not thrown; `close` stops all agents.
 */
import type { Owner } from '#specs/node/directory.ts'
import { Mutex, Semaphore } from '#specs/node/semaphore.ts'
import type { Result, RunReason, ToolError } from '#specs/protocol/error.ts'
import { noUsage } from '#specs/protocol/task.ts'
import type { OpenedExtensions } from '../extensions/extension-set.ts'
import type { RunBudget } from '../run/budget.ts'
import type { AgentRun, Report } from '../run/run.ts'
import type { StepResult } from '../step/step.ts'
import { createRegistry, type Registry } from '../tool-calls/registry.ts'
import type { AgentRequest, AgentResult, Agents } from '../tool-calls/sub-agent-types.ts'
import { type Tool, toolFailure } from '../tool-calls/tool.ts'
import { defaultRoot, workOwner } from '../workspace/file-access.ts'
import { describeWorkspace } from '../workspace/listing.ts'
import { childRun, converse, lastWords } from './child-run.ts'
import { type MergeOutcome, mergeChanges, nothingMerged, takeFile } from './merge-changes.ts'
import { ChildReport } from './sub-agent-report.ts'
import { type AgentView, type ViewSource, Views } from './views.ts'

export interface AgentsParts {
  readonly views: ViewSource
  /** The tools of an agent whose workspace is the view, without those that start agents. */
  toolsFor(view: AgentView): readonly Tool[]
  reportFor(agentPath: string): Report
  /** The task's extension tools over the view; default none. */
  readonly extensionTools?: OpenedExtensions['toolsFor']
  /** The parent's workspace; default: the guest's mount point. */
  readonly root?: string
  /** Owner of merged files; default the guest's `work`. */
  readonly owner?: Owner
}

export interface RunAgents extends Agents {
  /** Stops running sub-agents, waits for their ends, and discards their views. */
  close(): Promise<void>
}

/** Creates the agents of `parent`, a root run. */
export function createAgents(parent: AgentRun, parts: AgentsParts): RunAgents {
  return new RootAgents(parent, parts)
}

/** An admitted sub-agent. */
interface Child {
  readonly agentPath: string
  readonly request: AgentRequest
  readonly stepId: string
  readonly budget: RunBudget
  readonly view: AgentView
  readonly signal: AbortSignal
}

class RootAgents implements RunAgents {
  readonly #parent: AgentRun
  readonly #parts: AgentsParts
  readonly #places: Semaphore
  readonly #merging = new Mutex()
  readonly #views: Views
  readonly #closing = new AbortController()
  readonly #running = new Set<Promise<AgentResult>>()
  readonly #names = new Set<string>()
  readonly #root: string
  readonly #owner: Owner

  constructor(parent: AgentRun, parts: AgentsParts) {
    this.#parent = parent
    this.#parts = parts
    this.#places = new Semaphore(parent.task.limits.maxParallelAgents)
    this.#views = new Views(parts.views, this.#merging, parent.logger)
    this.#root = parts.root ?? defaultRoot
    this.#owner = parts.owner ?? workOwner
    for (const agentPath of parent.log.agents) this.#names.add(agentPath.slice('root/'.length))
  }

  get begun(): number {
    return this.#names.size
  }

  async spawn(request: AgentRequest, stepId: string, signal: AbortSignal): Promise<AgentResult> {
    const { maxAgents } = this.#parent.task.limits
    const problem = this.#findProblem(request)
    if (problem !== null) return refused(`root/${plainName(request.name)}`, problem)
    if (this.#names.size >= maxAgents) {
      const { error } = toolFailure(
        'limit_reached',
        `sub-agent limit reached (maxAgents = ${maxAgents}): do the rest without sub-agents`,
      )
      return refused(`root/${plainName(request.name)}`, error)
    }
    const agentPath = `root/${this.#claimName(request.name)}`
    const ends = AbortSignal.any([signal, this.#parent.signal, this.#closing.signal])
    const running = this.#inTurn(agentPath, request, stepId, ends)
    this.#running.add(running)
    try {
      return await running
    } finally {
      this.#running.delete(running)
    }
  }

  findView(agent: string): Result<string> {
    const view = this.#views.find(pathOf(agent))
    if (view !== undefined) return { ok: true, value: view.path }
    const message = `${pathOf(agent)} has no files left: only conflicting files of a finished sub-agent are kept, until the run ends or the space is needed`
    return toolFailure('not_found', message)
  }

  async takeFile(agent: string, path: string): Promise<Result<string>> {
    return await this.#merging.run(async () => {
      const view = this.findView(agent)
      return view.ok ? await takeFile(view.value, this.#root, path, this.#owner) : view
    })
  }

  async close(): Promise<void> {
    this.#closing.abort('the run is over')
    await Promise.allSettled([...this.#running])
    await this.#views.closeAll()
  }

  #findProblem({ brief, tools }: AgentRequest): ToolError | null {
    if (brief.trim() === '') return toolFailure('invalid_input', 'the brief is empty: say what to do').error
    const unknown = (tools ?? []).filter((name) => !this.#parent.registry.names.includes(name))
    if (unknown.length === 0) return null
    const message = `there is no tool ${unknown.join(', ')} here that could be given on; there are ${this.#parent.registry.names.join(', ')}`
    return toolFailure('invalid_input', message).error
  }

  #claimName(wanted: string | undefined): string {
    const base = plainName(wanted)
    let name = base
    for (let number = 2; this.#names.has(name); number++) name = `${base.slice(0, 28)}-${number}`
    this.#names.add(name)
    return name
  }

  async #inTurn(
    agentPath: string,
    request: AgentRequest,
    stepId: string,
    signal: AbortSignal,
  ): Promise<AgentResult> {
    if (!(await this.#places.take(signal)))
      return { ...nothing(agentPath), state: 'cancelled', reason: 'cancelled' }
    try {
      return await this.#begin(agentPath, request, stepId, signal)
    } catch (error) {
      this.#parent.logger.error({ agentPath, err: error }, 'sub-agent threw')
      const message = 'internal error of the sub-agent; the log has the details'
      return refused(agentPath, toolFailure('internal', message).error)
    } finally {
      this.#places.giveBack()
    }
  }

  async #begin(
    agentPath: string,
    request: AgentRequest,
    stepId: string,
    signal: AbortSignal,
  ): Promise<AgentResult> {
    const { maxParallelAgents } = this.#parent.task.limits
    const budget = this.#parent.budget.part(request.limits ?? {}, maxParallelAgents)
    if (budget === null) {
      const message = 'nothing of the budget is left for a sub-agent: do the rest yourself, or end'
      return refused(agentPath, toolFailure('limit_reached', message).error)
    }
    try {
      const opened = await this.#views.open()
      if (!opened.ok) {
        const code = opened.error.code === 'no_space' ? 'no_space' : 'unavailable'
        const message = `no view of the workspace for a sub-agent: ${opened.error.message}`
        return refused(agentPath, toolFailure(code, message, opened.error.code === 'busy').error)
      }
      return await this.#live({ agentPath, request, stepId, budget, view: opened.value, signal })
    } finally {
      budget.stop()
    }
  }

  /** Runs a sub-agent from its first event to its last. */
  async #live(child: Child): Promise<AgentResult> {
    const { agentPath, request, stepId, budget, view } = child
    const report = new ChildReport(this.#parts.reportFor(agentPath))
    const signal = AbortSignal.any([child.signal, budget.signal])
    const tools = this.#parts.toolsFor(view)
    const over = { agentPath, root: view.path, view: view.id }
    // Everything started in the view ends before the merge.
    const ending = new AbortController()
    const brought = (await this.#parts.extensionTools?.(over, AbortSignal.any([signal, ending.signal]))) ?? []
    const registry = this.#registryOf([...tools, ...brought], request)
    await report.begin(request, stepId, registry.names, budget.limits)
    let result: AgentResult = { ...nothing(agentPath), state: 'failed', reason: 'internal' }
    try {
      const workspaceListing = await describeWorkspace(tools, signal)
      const run = childRun(this.#parent, request, {
        agentPath,
        registry,
        budget,
        report,
        workspaceListing,
        signal,
      })
      const end = endingOf(await converse(request, run, signal), child)
      ending.abort('the sub-agent has ended')
      const merge = end.state === 'cancelled' ? nothingMerged : await this.#mergeChild(child)
      result = { ...result, ...end, ...merge, usage: budget.usage }
    } catch (error) {
      this.#parent.logger.error({ agentPath, err: error }, 'sub-agent threw')
      result = {
        ...result,
        text: 'internal error of the sub-agent; the log has the details',
        usage: budget.usage,
      }
    }
    ending.abort('the sub-agent has ended')
    report.close()
    if (result.conflicts.length > 0) this.#views.keep(agentPath, view)
    else this.#views.close(view)
    await report.end(result, stepId)
    return result
  }

  /** The requested tools that the parent has and that work over a view. */
  #registryOf(tools: readonly Tool[], request: AgentRequest): Registry {
    const allowed = new Set(request.tools ?? this.#parent.registry.names)
    const chosen = tools.filter(({ name }) => allowed.has(name) && this.#parent.registry.names.includes(name))
    return createRegistry(chosen, { logger: this.#parent.logger })
  }

  async #mergeChild({ view, signal }: Child): Promise<MergeOutcome> {
    return await this.#merging.run(() => mergeChanges(view, this.#root, this.#owner, signal))
  }
}

/** The outcome of an ended conversation: by the run's end, by a limit of the child's, or its own result. */
function endingOf(
  result: StepResult,
  { budget, signal }: Child,
): Pick<AgentResult, 'state' | 'reason' | 'text'> {
  const { state, reason, text } = result
  if (signal.aborted)
    return { state: 'cancelled', reason: 'cancelled', text: lastWords(result.history) || text }
  const limit: RunReason | undefined =
    budget.tripped?.reason ?? (reason === 'limit_turns' ? reason : undefined)
  // It may have answered with the last of its budget.
  if (limit === undefined || state === 'completed') return { state, reason, text }
  const why = budget.tripped?.message ?? text
  const words = lastWords(result.history)
  return {
    state: 'failed',
    reason: limit,
    text: `${words === '' ? '' : `${words}\n\n`}[Caisson] Ended before it was done: ${why}`,
  }
}

function nothing(agentPath: string): Omit<AgentResult, 'state' | 'reason'> {
  return { agentPath, text: '', usage: noUsage, ...nothingMerged }
}

/** Result of a sub-agent that never started. */
function refused(agentPath: string, error: ToolError): AgentResult {
  return {
    ...nothing(agentPath),
    state: 'failed',
    reason: 'step_failed',
    text: error.message,
    refused: error,
  }
}

/** A name in the alphabet of agent paths. */
function plainName(wanted: string | undefined): string {
  const name = (wanted ?? '')
    .replaceAll(/[^A-Za-z0-9_-]+/g, '-')
    .replaceAll(/^-+|-+$/g, '')
    .slice(0, 32)
  return name === '' ? 'agent' : name
}

function pathOf(agent: string): string {
  return agent.startsWith('root/') ? agent : `root/${agent}`
}
