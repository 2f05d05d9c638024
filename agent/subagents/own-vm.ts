/**
 * A sub-agent in a VM of its own. In its parent's VM: has the host carry it out, and writes its changes into its view
 * here, from where they are merged as those of every sub-agent. In its own VM: makes a task's ending of its result.
 */
import { errorMessage } from '#specs/errors.ts'
import type { Owner } from '#specs/node/directory.ts'
import type { AgentRunRequest, AgentRunResult } from '#specs/protocol/agent-vm.ts'
import type { Result, ToolError } from '#specs/protocol/error.ts'
import type { RpcFailure } from '#specs/protocol/peer.ts'
import type { ModelPrice } from '#specs/protocol/run-models.ts'
import type { Task } from '#specs/protocol/task.ts'
import type { StreamOpener } from '../proxy/egress-stream.ts'
import type { RunBudget } from '../run/budget.ts'
import type { Report, RunEnding } from '../run/run.ts'
import type { Steering } from '../run/steering.ts'
import type { AgentRequest, AgentResult, Agents } from '../tool-calls/sub-agent-types.ts'
import { toolFailure } from '../tool-calls/tool.ts'
import { type LeftOutPath, writeChanges } from '../workspace/write-changes.ts'
import type { AgentView } from './views.ts'

/** The host's VMs for sub-agents. */
export interface VmsOfHost {
  run(
    request: Omit<AgentRunRequest, 'runId'>,
    signal: AbortSignal,
  ): Promise<Result<AgentRunResult, RpcFailure>>
  /** Writes what an ended one changed into its view. @returns paths that could not be written */
  takeChanges(
    agentPath: string,
    view: AgentView,
    options: { readonly owner: Owner; readonly signal: AbortSignal },
  ): Promise<readonly LeftOutPath[]>
}

interface OwnVmParts {
  readonly agentPath: string
  readonly stepId: string
  readonly request: AgentRequest
  readonly tools: readonly string[]
  readonly budget: RunBudget
  /** Of its model. Absent: not known. */
  readonly price?: ModelPrice | undefined
  readonly maxTurns: number
  /** Its messages so far. */
  readonly steering: Steering
}

/** Time for it to end by itself once a limit of its parent's budget has tripped. */
export const ownEndMs = 60_000

/** Aborted `afterMs` after `signal`. */
export function later(signal: AbortSignal, afterMs: number): AbortSignal {
  const controller = new AbortController()
  const abort = (): void => void setTimeout(() => controller.abort(signal.reason), afterMs).unref()
  if (signal.aborted) abort()
  else signal.addEventListener('abort', abort, { once: true })
  return controller.signal
}

/** Runs it to its end. Failure: the host has no VM for it, or `signal` is aborted. */
export async function runInOwnVm(
  { agentPath, stepId, request, tools, budget, price, maxTurns, steering }: OwnVmParts,
  run: VmsOfHost['run'],
  signal: AbortSignal,
): Promise<Result<AgentRunResult>> {
  const { brief, output, effort, model, hosts, approvals } = request
  using reader = steering.join()
  const messages = reader.take().map(({ messageId, text }) => ({ messageId, text }))
  const answer = await run(
    {
      agentPath,
      stepId,
      brief,
      tools: [...tools],
      limits: { ...limitsOf(budget), maxTurns },
      ...(output === undefined ? {} : { output }),
      ...(effort === undefined ? {} : { effort }),
      ...(model === undefined ? {} : { model }),
      ...(messages.length === 0 ? {} : { messages }),
      ...(hosts === undefined ? {} : { hosts: [...hosts] }),
      ...(approvals === undefined ? {} : { approvals }),
    },
    signal,
  )
  if (answer.ok) {
    const { usage, toolCalls, agents } = answer.value
    budget.addSpent({ usage, toolCalls, agents }, price)
    return answer
  }
  return toolFailure('unavailable', `no VM of its own for a sub-agent: ${answer.error.message}`)
}

/** What is left of a part that begins now. */
function limitsOf(budget: RunBudget): AgentRunRequest['limits'] {
  const { maxToolCalls, maxTokens, maxWallMs, maxRequests, maxCostUsd } = budget.limits
  return {
    maxToolCalls,
    maxTokens,
    maxWallMs: Math.max(1_000, maxWallMs),
    maxAgents: budget.agentRoom,
    ...(maxRequests === undefined ? {} : { maxRequests }),
    ...(maxCostUsd === undefined ? {} : { maxCostUsd }),
  }
}

/** See {@link VmsOfHost}. @throws when the changes do not come whole */
export async function takeChanges(
  agentPath: string,
  view: AgentView,
  http: StreamOpener,
  { owner, signal }: { readonly owner: Owner; readonly signal: AbortSignal },
): Promise<LeftOutPath[]> {
  const head = { ':method': 'GET', ':path': `/agent-changes/${agentPath}` }
  const stream = await http.openStream(head, { signal, endStream: true })
  try {
    const { promise, resolve, reject } = Promise.withResolvers<number>()
    stream.once('response', (headers) => resolve(headers[':status'] ?? 0))
    stream.once('close', () => reject(new Error('the host did not answer')))
    const status = await promise
    if (status !== 200) throw new Error(`the host answered ${status}`)
    return await writeChanges(stream as AsyncIterable<Uint8Array>, view.path, owner)
  } finally {
    stream.destroy()
  }
}

/** Reports of a sub-agent without its start and end, which its parent's agent reports. */
export function withoutFrame(report: Report): Report {
  return {
    ...report,
    event: (event) =>
      event.type === 'agent-start' || event.type === 'agent-end' ? Promise.resolve() : report.event(event),
  }
}

/** Carries out the task of a sub-agent in this VM. */
export async function runSubAgentTask(
  {
    prompt,
    limits,
    subAgent,
  }: Pick<Task, 'prompt' | 'limits'> & { readonly subAgent: NonNullable<Task['subAgent']> },
  agents: Agents,
  signal: AbortSignal,
): Promise<RunEnding> {
  const { agentPath, stepId, output } = subAgent
  const { maxTurnsPerStep: maxTurns, maxToolCalls, maxTokens, maxWallMs, maxRequests, maxCostUsd } = limits
  const request: AgentRequest = {
    name: agentPath.slice(agentPath.lastIndexOf('/') + 1),
    brief: prompt,
    // All that the task has.
    limits: {
      maxTurns,
      maxToolCalls,
      maxTokens,
      maxWallMs,
      ...(maxRequests === undefined ? {} : { maxRequests }),
      ...(maxCostUsd === undefined ? {} : { maxCostUsd }),
    },
    ...(output === undefined ? {} : { output }),
  }
  const { state, reason, text, refused } = await agents.spawn(request, stepId, signal)
  const message = refused === undefined ? `the sub-agent ended as ${state}` : messageOf(refused)
  return { outcome: state, reason, message, summary: text }
}

const messageOf = ({ message }: ToolError): string => `the sub-agent did not begin: ${message}`

/** The result with what went wrong with its changes. */
export function withoutChanges(
  end: Pick<AgentResult, 'state' | 'reason' | 'text'>,
  error: unknown,
): Pick<AgentResult, 'state' | 'reason' | 'text'> {
  const text = `${end.text}\n\n[Caisson] Its changes are lost: ${errorMessage(error)}`.trimStart()
  return { state: 'failed', reason: 'step_failed', text }
}
