/**
 * Sub-agents in VMs of their own: forks the disk of the run's VM for each, has its agent work there, and keeps what it
 * changed for the agent that asked. A VM that is lost, or breaks the protocol, fails its sub-agent alone.
 */
import { randomBytes } from 'node:crypto'
import { createReadStream, createWriteStream } from 'node:fs'
import { mkdir, rm } from 'node:fs/promises'
import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2'
import path from 'node:path'
import { Transform } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import type { AgentRunRequest, AgentRunResult } from '#specs/protocol/agent-vm.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { AgentEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { HandlerFailure, RpcFailure } from '#specs/protocol/peer.ts'
import { findModelProblem } from '#specs/protocol/run-models.ts'
import { type Completion, noUsage, type Task } from '#specs/protocol/task.ts'
import type { Budget } from '../../gateway/budget.ts'
import { gatewayAuthority } from '../../gateway/gateway.ts'
import { type HostCallResults, resultsFor } from '../../tools/calls.ts'
import type { CheckpointDisk } from '../../vm/checkpoints/checkpoint-disk.ts'
import type { Vm } from '../../vm/vm.ts'
import { runEnding } from '../ending.ts'
import type { PreparedWorkspace } from '../prepare.ts'
import type { ResolvedRun } from '../resolved-run.ts'
import { untilAborted } from '../until-aborted.ts'
import type { AgentMessage } from './agent-control.ts'
import { type AgentVmCounts, approvalsOf, claimsOf, planFor, recordOf, taskFor } from './agent-vm-parts.ts'
import type { GuestParts } from './guest-parts.ts'

/** A guest as it is used here. */
interface AgentGuest extends AsyncDisposable {
  perform(task: Task, onAccepted: () => void): Promise<Completion>
  steer(message: AgentMessage): Promise<Result<unknown, RpcFailure>>
  cancelAgent(agentPath: string, reason: string): Promise<Result<unknown, RpcFailure>>
  setTaskPaused(paused: boolean): Promise<Result<unknown, RpcFailure>>
  setPaused(paused: boolean): Promise<string | undefined>
  holdTask(waiting: boolean): Promise<void>
}

interface AgentVmsParts {
  readonly plan: ResolvedRun
  readonly parts: GuestParts
  readonly workspace: PreparedWorkspace
  /** The VM whose disk is forked. */
  readonly vm: () => Vm
  readonly isTaskPaused: () => boolean
  /** What all agents of the run may spend. */
  readonly budget: Budget
  start(
    plan: ResolvedRun,
    parts: GuestParts,
    workspace: PreparedWorkspace,
    signal: AbortSignal,
    requests: { stop(now: boolean): void; setPaused(paused: boolean): Promise<string | undefined> },
  ): Promise<AgentGuest>
}

/** A sub-agent that has a VM, or is about to. */
interface Entry {
  readonly guest: Promise<AgentGuest>
  readonly ended: Promise<unknown>
}

const contentSlackBytes = 256 * 1024 * 1024
const pathPrefix = '/agent-changes/'

export class AgentVms {
  readonly #parts: AgentVmsParts
  readonly #entries = new Map<string, Entry>()
  /** Folders of those whose changes wait, by path. */
  readonly #kept = new Map<string, string>()
  /** Paths of all that had a VM. */
  readonly #paths = new Set<string>()
  /** Names of the disk's states that were forked: nobody needs them in this disk. */
  readonly #forks = new Set<string>()
  readonly #closing = new AbortController()
  /** Of calls before a loss: what the run's agent calls from now on is no sub-agent's to know. */
  readonly #earlierResults: HostCallResults

  constructor(parts: AgentVmsParts) {
    this.#parts = parts
    this.#earlierResults = new Map(parts.parts.hostCallResults)
  }

  get isBusy(): boolean {
    return this.#entries.size > 0
  }

  /** Why an event of the run's VM about a sub-agent is not its own to report; null where it is. */
  check(agentPath: string, event: AgentEvent): string | null {
    const owner = this.#ownerOf(agentPath)
    if (owner === undefined) return null
    if (owner === agentPath && event.type === 'agent-end') {
      this.#forget(agentPath)
      return null
    }
    return `${event.type} of ${agentPath}, which works in another VM`
  }

  /** Carries a sub-agent out. Failure: there is no VM for it. */
  readonly run = async (
    request: AgentRunRequest,
    signal: AbortSignal,
  ): Promise<Result<AgentRunResult, HandlerFailure>> => {
    const { agentPath } = request
    const { checkpoints } = this.#parts.vm()
    if (checkpoints === undefined) return failed('the run makes no checkpoints (vm.recoveries is 0)')
    if (this.#closing.signal.aborted) return failed('the run ends')
    if (agentPath === 'root') return failed('the root agent has the VM of the run')
    const problem = findModelProblem(request.model, [...(this.#parts.plan.stepModels?.keys() ?? [])])
    if (problem !== null) return failed(problem)
    const { maxParallelAgents } = this.#parts.plan.limits
    // The agent keeps to it by itself.
    if (this.#entries.size >= maxParallelAgents)
      return failed(`${this.#entries.size} sub-agents have VMs of their own already (maxParallelAgents)`)
    this.#paths.add(agentPath)
    const { record } = this.#parts.parts
    const directory = path.join(record.paths.agents, agentPath.replaceAll('/', '.'))
    const ends = AbortSignal.any([signal, this.#closing.signal])
    const started = Promise.withResolvers<AgentGuest>()
    started.promise.catch(() => undefined)
    const ended = this.#carryOut(request, directory, ends, started)
    this.#entries.set(agentPath, { guest: started.promise, ended })
    try {
      const result = await ended
      if (result.hasChanges) this.#kept.set(agentPath, directory)
      else await remove(directory)
      return { ok: true, value: result }
    } catch (error) {
      await remove(directory)
      return failed(errorMessage(error))
    } finally {
      this.#entries.delete(agentPath)
    }
  }

  /** Serves the changes of an ended sub-agent to the agent that asked for it. @returns whether the stream was for that */
  handleStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): boolean {
    const asked = headers[':path'] ?? ''
    if (headers[':authority'] !== gatewayAuthority || !asked.startsWith(pathPrefix)) return false
    const directory = this.#kept.get(asked.slice(pathPrefix.length))
    if (headers[':method'] !== 'GET' || directory === undefined) {
      stream.respond({ ':status': 404 }, { endStream: true })
      return true
    }
    stream.respond({ ':status': 200, 'content-type': 'application/octet-stream' })
    void pipeline(createReadStream(changesOf(directory)), stream).catch(() => undefined)
    return true
  }

  /** The guest with this sub-agent; undefined: it is in the run's VM. */
  find(agentPath: string | undefined): Promise<AgentGuest> | undefined {
    const owner = agentPath === undefined ? undefined : this.#ownerOf(agentPath)
    return owner === undefined ? undefined : this.#entries.get(owner)?.guest
  }

  /** Whether the path is that of a sub-agent with a VM, rather than of one below it. */
  has(agentPath: string): boolean {
    return this.#paths.has(agentPath)
  }

  /** Does the same to all. */
  async each(act: (guest: AgentGuest) => Promise<unknown>): Promise<void> {
    const guests = [...this.#entries.values()].map(({ guest }) => guest)
    await Promise.all(guests.map((guest) => guest.then(act).catch(() => undefined)))
  }

  /** Ends all with their VMs. */
  async close(): Promise<void> {
    this.#closing.abort()
    await Promise.allSettled([...this.#entries.values()].map(({ ended }) => ended))
    await remove(this.#parts.parts.record.paths.agents)
  }

  #ownerOf(agentPath: string): string | undefined {
    for (const owner of this.#paths)
      if (agentPath === owner || agentPath.startsWith(`${owner}/`)) return owner
    return undefined
  }

  #forget(agentPath: string): void {
    const directory = this.#kept.get(agentPath)
    this.#kept.delete(agentPath)
    if (directory !== undefined) void remove(directory)
  }

  async #carryOut(
    request: AgentRunRequest,
    directory: string,
    signal: AbortSignal,
    started: PromiseWithResolvers<AgentGuest>,
  ): Promise<AgentRunResult> {
    const { plan, start, workspace } = this.#parts
    const counts: AgentVmCounts = { toolCalls: 0, agents: 0 }
    const changes = new ReceivedChanges(plan.runId, changesOf(directory))
    try {
      const narrowed = planFor(plan, request)
      using _place = await plan.turn?.extraVm(signal)
      const checkpointDisk = await this.#fork(directory)
      const parts = this.#partsFor(request, directory, counts, { checkpointDisk, changes })
      const stop = new AbortController()
      const { vm: _, ...shared } = workspace
      const own = { ...shared, [Symbol.asyncDispose]: async () => undefined }
      await using guest = await start(narrowed, parts, own, AbortSignal.any([signal, stop.signal]), {
        stop: () => stop.abort(new CaissonError('cancelled', 'a person ended its VM')),
        setPaused: async (paused) => await guest.setPaused(paused),
      })
      started.resolve(guest)
      const ends = AbortSignal.any([signal, stop.signal])
      const task = taskFor(plan, narrowed, request)
      const onAccepted = () => {
        if (this.#parts.isTaskPaused()) void guest.setTaskPaused(true)
      }
      const completion = await untilAborted(guest.perform(task, onAccepted), ends)
      const { outcome, reason, summary, usage } = completion
      return { state: outcome, reason, text: summary, usage, ...counts, hasChanges: changes.isWhole }
    } catch (error) {
      started.reject(error)
      signal.throwIfAborted()
      if (!isLoss(error)) throw error
      const { reason, message } = runEnding(error)
      const text = `[Caisson] The VM of the sub-agent ended before its work did: ${message}`
      const lost = { state: 'failed', reason, text: text.slice(0, limits.textMaxChars) } as const
      return { ...lost, usage: noUsage, ...counts, hasChanges: false }
    }
  }

  /** The disk as it is now. */
  async #fork(directory: string): Promise<CheckpointDisk> {
    const { checkpoints } = this.#parts.vm()
    if (checkpoints === undefined) throw new CaissonError('not_possible_now', 'the VM has no checkpoints')
    await remove(directory)
    await mkdir(directory, { recursive: true, mode: 0o700 })
    const id = `fork-${randomBytes(8).toString('hex')}`
    await checkpoints.make(id)
    const disk = await checkpoints.fork(path.join(directory, 'scratch'), id)
    this.#forks.add(id)
    // The last one stays until the next checkpoint; what a fork still shares is merged later.
    await checkpoints.drop(this.#forks)
    return disk
  }

  #partsFor(
    request: AgentRunRequest,
    directory: string,
    counts: AgentVmCounts,
    { checkpointDisk, changes }: { checkpointDisk: CheckpointDisk; changes: ReceivedChanges },
  ): GuestParts {
    const { parts, budget } = this.#parts
    const { agentPath } = request
    const { earlier: _, ...shared } = parts
    return {
      ...shared,
      record: recordOf(parts.record, agentPath, directory, counts),
      claims: claimsOf(parts.claims, agentPath),
      approvals: approvalsOf(parts.approvals, request),
      hostCallResults: resultsFor(this.#earlierResults, agentPath),
      checkpointDisk,
      subAgent: {
        within: budget,
        idPrefix: `${agentPath.slice('root/'.length).replaceAll('/', '.')}-`,
        handleStream: (stream, headers) => changes.handleStream(stream, headers),
      },
    }
  }
}

/** The change set that a sub-agent sends, as it comes: the agent that asked checks it. */
class ReceivedChanges {
  readonly #path: string
  readonly #file: string
  #isWhole = false
  #last: Promise<unknown> = Promise.resolve()

  constructor(runId: string, file: string) {
    this.#path = `/changes/${runId}`
    this.#file = file
  }

  get isWhole(): boolean {
    return this.#isWhole
  }

  handleStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): boolean {
    if (headers[':authority'] !== gatewayAuthority || headers[':path'] !== this.#path) return false
    if (headers[':method'] !== 'POST') stream.respond({ ':status': 409 }, { endStream: true })
    // A lost session cuts a stream short, and the guest sends it again: the last one counts.
    else this.#last = this.#last.then(() => this.#receive(stream))
    return true
  }

  async #receive(stream: ServerHttp2Stream): Promise<void> {
    this.#isWhole = false
    let left = limits.changeMaxContentBytes + contentSlackBytes
    const bound = new Transform({
      transform: (chunk: Buffer, _, done) => {
        left -= chunk.length
        done(left < 0 ? new Error('the changes are too large') : null, chunk)
      },
    })
    try {
      await pipeline(stream, bound, createWriteStream(this.#file, { mode: 0o600 }), { end: true })
      this.#isWhole = true
      stream.respond({ ':status': 204 }, { endStream: true })
    } catch {
      if (!stream.destroyed && !stream.headersSent) stream.respond({ ':status': 507 }, { endStream: true })
    }
  }
}

const changesOf = (directory: string): string => path.join(directory, 'changes')

async function remove(directory: string): Promise<void> {
  await rm(directory, { recursive: true, force: true })
}

/** Whether the VM or its agent ended, rather than never began. */
function isLoss(error: unknown): boolean {
  return (
    error instanceof CaissonError &&
    ['vm_lost', 'agent_lost', 'protocol_violation', 'cancelled', 'connection_lost'].includes(error.code)
  )
}

function failed(message: string): { ok: false; error: HandlerFailure } {
  return { ok: false, error: { code: 'failed', message: message.slice(0, 2_000) } }
}
