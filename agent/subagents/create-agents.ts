/**
 * The sub-agents of one agent: started in order within the run's limits on number, depth and parallelism, each with a
 * part of the budget and its own view; merged one after the other. Failures are returned, not thrown; `close` stops
 * all of them, with those below.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Owner } from '#specs/node/directory.ts'
import { Mutex } from '#specs/node/semaphore.ts'
import type { Result, RunReason, ToolError } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import { findModelProblem } from '#specs/protocol/run-models.ts'
import { noUsage } from '#specs/protocol/task.ts'
import type { OpenedExtensions } from '../extensions/extension-set.ts'
import type { RunBudget } from '../run/budget.ts'
import type { AgentRun, Report } from '../run/run.ts'
import type { SteerMessage } from '../run/steering.ts'
import { atModel, modelNamesOf } from '../run/step-model.ts'
import type { ReachableAgent } from '../run/sub-agents.ts'
import type { StepResult } from '../step/step.ts'
import { truncate } from '../text/truncate.ts'
import { createRegistry, type Registry } from '../tool-calls/registry.ts'
import {
  type AgentRequest,
  type AgentResult,
  type Agents,
  agentToolNames,
} from '../tool-calls/sub-agent-types.ts'
import { type Tool, toolFailure } from '../tool-calls/tool.ts'
import { revisePlanName } from '../tools/revise-plan.ts'
import { defaultRoot, workOwner } from '../workspace/file-access.ts'
import { describeWorkspace } from '../workspace/listing.ts'
import { childRun, converse, lastWords, maxTurnsOf } from './child-run.ts'
import { mergeChanges, nothingMerged, takeFile } from './merge-changes.ts'
import { later, ownEndMs, runInOwnVm, type VmsOfHost, withoutChanges } from './own-vm.ts'
import { OwnPlace, Places } from './places.ts'
import { ChildReport } from './sub-agent-report.ts'
import { type AgentView, type KeptViews, type ViewSource, Views } from './views.ts'

export interface AgentsParts {
  readonly views: ViewSource
  /** The tools of an agent whose workspace is the view, without those that start agents. */
  toolsFor(view: AgentView): readonly Tool[]
  reportFor(agentPath: string): Report
  /** For sub-agents in VMs of their own. Absent: there are none. */
  readonly vms?: VmsOfHost
  /** For the task of a sub-agent: sends what it changed to the VM of its parent. Absent: the task is a run's. */
  readonly sendView?: (view: AgentView, signal: AbortSignal) => Promise<Result<unknown>>
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

const alone = 'do the rest without sub-agents'

/** What all sub-agents of a run share. */
interface Family {
  readonly parts: AgentsParts
  readonly places: Places
  /** Paths of all that began or are queued. */
  readonly paths: Set<string>
  readonly kept: KeptViews
}

/** Creates the agents of `parent`, a root run. */
export function createAgents(parent: AgentRun, parts: AgentsParts): RunAgents {
  const family: Family = {
    parts,
    places: new Places(parent.task.limits.maxParallelAgents),
    paths: new Set(parent.log.agents),
    kept: new Map(),
  }
  return new AgentsOf(parent, family, { root: parts.root ?? defaultRoot })
}

/** Where an agent works, and the place that it has among those at work. */
interface ParentPlace {
  readonly root: string
  /** Id of its view; absent: the workspace itself. */
  readonly view?: string
  /** Absent for the root agent. */
  readonly place?: OwnPlace
}

/** An admitted sub-agent. */
interface Child {
  readonly agentPath: string
  readonly place: OwnPlace
  readonly request: AgentRequest
  readonly stepId: string
  readonly budget: RunBudget
  readonly view: AgentView
  readonly signal: AbortSignal
  /** As a person reaches it. */
  readonly person: ReachableAgent
}

class AgentsOf implements RunAgents {
  readonly #parent: AgentRun
  readonly #family: Family
  readonly #parts: AgentsParts
  readonly #place: OwnPlace | undefined
  /** Of those that are started here. */
  readonly #depth: number
  readonly #merging = new Mutex()
  readonly #views: Views
  readonly #closing = new AbortController()
  readonly #running = new Set<Promise<AgentResult>>()
  readonly #root: string
  readonly #owner: Owner

  constructor(parent: AgentRun, family: Family, { root, view, place }: ParentPlace) {
    const { parts, kept } = family
    this.#parent = parent
    this.#family = family
    this.#parts = parts
    this.#place = place
    this.#depth = depthOf(parent.agentPath) + 1
    const { logger } = parent
    this.#views = new Views({ source: parts.views, turns: this.#merging, logger, of: view, kept })
    this.#root = root
    this.#owner = parts.owner ?? workOwner
  }

  get begun(): number {
    return this.#family.paths.size
  }

  async spawn(request: AgentRequest, stepId: string, signal: AbortSignal): Promise<AgentResult> {
    const problem = this.#findProblem(request)
    if (problem !== null) return refused(this.#pathOf(nameOf(request, stepId)), problem)
    if (!this.#parent.budget.takeAgent()) {
      const { maxAgents } = this.#parent.task.limits
      const { error } = toolFailure(
        'limit_reached',
        `sub-agent limit reached (maxAgents = ${maxAgents}): ${alone}`,
      )
      return refused(this.#pathOf(nameOf(request, stepId)), error)
    }
    const agentPath = this.#claimPath(nameOf(request, stepId))
    const person = this.#parent.subAgents.begin(agentPath)
    const ends = AbortSignal.any([signal, this.#parent.signal, this.#closing.signal, person.cancelled])
    const begin = (): Promise<AgentResult> =>
      this.#inTurn({ agentPath, request, stepId, signal: ends, person })
    const over = AbortSignal.any([this.#parent.signal, this.#closing.signal])
    const running = this.#place === undefined ? begin() : this.#place.without(begin, over)
    this.#running.add(running)
    try {
      return await running
    } finally {
      this.#running.delete(running)
      await this.#tellUnseen(agentPath, person.end())
    }
  }

  findView(agent: string): Result<string> {
    const agentPath = this.#pathOf(agent)
    const view = this.#views.find(agentPath)
    if (view !== undefined) return { ok: true, value: view.path }
    const message = `${agentPath} has no files left: only conflicting files of a finished sub-agent are kept, until the run ends or the space is needed`
    return toolFailure('not_found', message)
  }

  async takeFile(agent: string, path: string): Promise<Result<string>> {
    return await this.#merging.run(async () => {
      const view = this.findView(agent)
      return view.ok ? await takeFile(view.value, this.#root, path, this.#owner) : view
    })
  }

  async close(): Promise<void> {
    this.#closing.abort('its parent has ended')
    await Promise.allSettled([...this.#running])
    await this.#views.closeAll()
  }

  #findProblem(request: AgentRequest): ToolError | null {
    const { brief, tools } = request
    const { maxDepth } = this.#parent.task.limits
    if (this.#depth > maxDepth)
      return toolFailure('limit_reached', `sub-agents are at most ${maxDepth} deep (maxDepth): ${alone}`)
        .error
    if (brief.trim() === '') return toolFailure('invalid_input', 'the brief is empty: say what to do').error
    const problem = this.#findVmProblem(request)
    if (problem !== null) return problem
    const unknownModel = findModelProblem(request.model, modelNamesOf(this.#parent))
    if (unknownModel !== null) return toolFailure('invalid_input', unknownModel).error
    const unknown = (tools ?? []).filter((name) => !this.#parent.registry.names.includes(name))
    if (unknown.length === 0) return null
    const message = `there is no tool ${unknown.join(', ')} here that could be given on; there are ${this.#parent.registry.names.join(', ')}`
    return toolFailure('invalid_input', message).error
  }

  #findVmProblem({ isolation, hosts, approvals }: AgentRequest): ToolError | null {
    if (isolation !== 'vm') {
      if (hosts === undefined && approvals === undefined) return null
      const message = 'hosts and approvals need the isolation "vm": add it, or leave them out'
      return toolFailure('invalid_input', message).error
    }
    if (this.#parts.vms !== undefined && this.#parent.task.subAgent === undefined) return null
    const message = 'a sub-agent in a VM of its own starts no other VM: leave isolation out'
    return toolFailure('unavailable', message).error
  }

  #claimPath(base: string): string {
    const { paths } = this.#family
    let agentPath = this.#pathOf(base)
    for (let number = 2; paths.has(agentPath); number++)
      agentPath = this.#pathOf(`${base.slice(0, 28)}-${number}`)
    paths.add(agentPath)
    return agentPath
  }

  /** @param agent its path or the last part of it */
  #pathOf(agent: string): string {
    const { agentPath } = this.#parent
    return agent.startsWith('root/') ? agent : `${agentPath}/${agent}`
  }

  /** Messages that arrived after its last turn: none is lost silently. */
  async #tellUnseen(agentPath: string, unseen: readonly SteerMessage[]): Promise<void> {
    for (const { text } of unseen) {
      const words = `${agentPath} ended before it saw this message: ${text}`
      await this.#parent.report.event({
        type: 'note',
        level: 'warn',
        text: truncate(words, limits.textMaxChars),
      })
    }
  }

  async #inTurn(admitted: Omit<Child, 'budget' | 'view' | 'place'>): Promise<AgentResult> {
    const { agentPath, signal, person } = admitted
    const place = new OwnPlace(this.#family.places, this.#depth)
    if (!(await place.begin(signal)))
      return {
        ...nothing(agentPath),
        state: 'cancelled',
        reason: 'cancelled',
        text: person.cancelled.aborted ? cancelledByPerson(person) : '',
      }
    try {
      return await this.#begin({ ...admitted, place })
    } catch (error) {
      this.#parent.logger.error({ agentPath, err: error }, 'sub-agent threw')
      const message = 'internal error of the sub-agent; the log has the details'
      return refused(agentPath, toolFailure('internal', message).error)
    } finally {
      place.end()
    }
  }

  async #begin(admitted: Omit<Child, 'budget' | 'view'>): Promise<AgentResult> {
    const { agentPath, request } = admitted
    const { maxParallelAgents } = this.#parent.task.limits
    // The calls of one model reply arrive within one turn of the event loop, and share what there is.
    await nextTurn()
    const atOnce = Math.min(maxParallelAgents, this.#running.size)
    const budget = this.#parent.budget.part(request.limits ?? {}, atOnce)
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
      return await this.#live({ ...admitted, budget, view: opened.value })
    } finally {
      budget.stop()
    }
  }

  /** Runs a sub-agent from its first event to its last. */
  async #live(child: Child): Promise<AgentResult> {
    const { agentPath, request, stepId, budget, view } = child
    const report = new ChildReport(this.#parts.reportFor(agentPath))
    const signal = AbortSignal.any([child.signal, budget.signal])
    const isElsewhere = request.isolation === 'vm'
    // Everything started in the view ends before the merge.
    const ending = new AbortController()
    const here = isElsewhere
      ? undefined
      : await this.#openTools(child, AbortSignal.any([signal, ending.signal]))
    const tools = here?.registry.names ?? this.#toolsElsewhere(request)
    await report.begin(request, stepId, tools, budget.limits)
    let result: AgentResult = { ...nothing(agentPath), state: 'failed', reason: 'internal' }
    try {
      const lived =
        here === undefined
          ? await this.#liveElsewhere(child, tools)
          : await this.#liveHere(child, here, report, signal)
      ending.abort('the sub-agent has ended')
      result = { ...result, ...lived, ...(await this.#mergeChild(child, lived)), usage: budget.usage }
    } catch (error) {
      this.#parent.logger.error({ agentPath, err: error }, 'sub-agent threw')
      const text = 'internal error of the sub-agent; the log has the details'
      result = { ...result, text, usage: budget.usage }
    }
    ending.abort('the sub-agent has ended')
    report.close()
    if (result.conflicts.length > 0) this.#views.keep(agentPath, view)
    else this.#views.close(view)
    await report.end(result, stepId)
    return result
  }

  /** Its conversation in this VM, over the view. */
  async #liveHere(
    child: Child,
    { registry, tools }: ToolsHere,
    report: Report,
    signal: AbortSignal,
  ): Promise<Lived> {
    const { agentPath, request, budget, view, place } = child
    const run = childRun(this.#parent, request, {
      agentPath,
      registry,
      budget,
      report,
      steering: child.person.steering,
      workspaceListing: await describeWorkspace(tools, signal),
      signal,
      cancelled: child.signal,
    })
    const isParent = registry.names.some((name) => agentToolNames.includes(name))
    const below = isParent
      ? new AgentsOf(run, this.#family, { root: view.path, view: view.id, place })
      : undefined
    try {
      return endingOf(
        await converse(request, below === undefined ? run : { ...run, agents: below }, signal),
        child,
      )
    } finally {
      // What they bring into this view is merged with it.
      await below?.close()
    }
  }

  /** In a VM of its own; its changes are in the view afterwards. */
  async #liveElsewhere(child: Child, tools: readonly string[]): Promise<Lived> {
    const { agentPath, stepId, budget, view } = child
    const { modelName: model, task } = this.#parent
    const { effort } = task
    const request = {
      ...(effort === undefined ? {} : { effort }),
      ...(model === undefined ? {} : { model }),
      ...child.request,
    }
    const { price } = request.model === undefined ? task : atModel(this.#parent, request.model).task
    const { vms } = this.#parts
    if (vms === undefined) throw new TypeError('there are no VMs for sub-agents')
    const maxTurns = maxTurnsOf(request, this.#parent)
    const { steering } = child.person
    // A limit leaves it a turn to conclude, which its own VM sees to.
    const signal = AbortSignal.any([child.signal, later(budget.signal, ownEndMs)])
    const parts = { agentPath, request, stepId, budget, price, tools, maxTurns, steering }
    const ran = await runInOwnVm(parts, vms.run, signal)
    if (!ran.ok) {
      const text = `[Caisson] ${ran.error.message}`
      return endingOf({ state: 'failed', reason: 'environment', text, history: [] }, child)
    }
    const { state, reason, text, hasChanges } = ran.value
    const end = endingOf({ state, reason, text, history: [] }, child)
    if (!hasChanges || end.state === 'cancelled') return end
    try {
      return { ...end, leftOut: await vms.takeChanges(agentPath, view, { owner: this.#owner, signal }) }
    } catch (error) {
      return withoutChanges(end, error)
    }
  }

  /** Merges what it changed, or sends it to the VM of its parent. */
  async #mergeChild(child: Child, { state, leftOut = [] }: Lived): Promise<Partial<AgentResult>> {
    const { view, signal } = child
    if (state === 'cancelled') return nothingMerged
    const { sendView } = this.#parts
    if (sendView === undefined || this.#place !== undefined) {
      const merged = await this.#merging.run(() => mergeChanges(view, this.#root, this.#owner, signal))
      return { ...merged, leftOut: [...leftOut, ...merged.leftOut] }
    }
    const sent = await sendView(view, signal)
    return sent.ok ? {} : withoutChanges({ state, reason: 'step_failed', text: '' }, sent.error.message)
  }

  async #openTools({ agentPath, request, view }: Child, signal: AbortSignal): Promise<ToolsHere> {
    const tools = this.#parts.toolsFor(view)
    const over = { agentPath, root: view.path, view: view.id }
    const brought = (await this.#parts.extensionTools?.(over, signal)) ?? []
    return { tools, registry: this.#registryOf([...tools, ...brought], request) }
  }

  /** The tools of the parent that the agent in another VM has too. */
  #toolsElsewhere({ tools }: AgentRequest): string[] {
    const { registry, task } = this.#parent
    const isDeeper = this.#depth < task.limits.maxDepth
    return (tools ?? registry.names).filter(
      (name) => name !== revisePlanName && (isDeeper || !agentToolNames.includes(name)),
    )
  }

  /** The requested tools that the parent has and that work over a view; above the last depth those that start agents. */
  #registryOf(tools: readonly Tool[], request: AgentRequest): Registry {
    const { registry, task, logger } = this.#parent
    const allowed = new Set(request.tools ?? registry.names)
    const own = [...registry.byName.values()].filter(
      ({ name }) => agentToolNames.includes(name) && this.#depth < task.limits.maxDepth,
    )
    const chosen = tools.filter(({ name }) => registry.names.includes(name))
    return createRegistry(
      [...chosen, ...own].filter(({ name }) => allowed.has(name)),
      { logger },
    )
  }
}

interface ToolsHere {
  /** All that work over its view. */
  readonly tools: readonly Tool[]
  /** Those that it has. */
  readonly registry: Registry
}

/** How a sub-agent ended, and what of its changes could not be taken. */
type Lived = Pick<AgentResult, 'state' | 'reason' | 'text'> & Partial<Pick<AgentResult, 'leftOut'>>

/** The outcome of an ended conversation: by the run's end, by a limit of the child's, or its own result. */
function endingOf(
  result: StepResult,
  { budget, signal, person }: Child,
): Pick<AgentResult, 'state' | 'reason' | 'text'> {
  const { state, reason, text } = result
  if (signal.aborted) {
    const said = lastWords(result.history)
    const ended = { state: 'cancelled', reason: 'cancelled' } as const
    if (!person.cancelled.aborted) return { ...ended, text: said || text }
    return { ...ended, text: [said, cancelledByPerson(person)].filter((part) => part !== '').join('\n\n') }
  }
  const limit: RunReason | undefined =
    budget.tripped?.reason ?? (reason.startsWith('limit_') ? reason : undefined)
  // It may have answered with the last of its budget.
  if (limit === undefined || state === 'completed') return { state, reason, text }
  const why = budget.tripped?.message ?? result.ended ?? text
  const words = result.ended === undefined ? lastWords(result.history) : text
  return {
    state: 'failed',
    reason: limit,
    text: `${words === '' ? '' : `${words}\n\n`}[Caisson] Ended before it was done: ${why}`,
  }
}

/** For the parent, which continues. */
function cancelledByPerson({ reason }: ReachableAgent): string {
  const why = reason === '' ? '.' : `: ${reason}`
  return `[Caisson] Cancelled by the person${why}`
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

/** In the alphabet of agent paths. After a loss it is the same, in whatever order parallel steps begin again. */
function nameOf({ name: wanted }: AgentRequest, stepId: string): string {
  const name = (wanted ?? `${stepId}-agent`)
    .replaceAll(/[^A-Za-z0-9_-]+/g, '-')
    .replaceAll(/^-+|-+$/g, '')
    .slice(0, 32)
  return name === '' ? 'agent' : name
}

/** 0 for the root agent. */
function depthOf(agentPath: string): number {
  return agentPath.split('/').length - 1
}
