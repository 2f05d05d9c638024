/** What each method of A2A does, by routes of the service in the name of its caller. Runs outlive every request. */

import {
  type AgentCard,
  type CancelTaskRequest,
  type GetTaskRequest,
  type ListTasksRequest,
  type ListTasksResponse,
  type SendMessageRequest,
  type StreamResponse,
  type SubscribeToTaskRequest,
  type Task,
  TaskState,
} from '@a2a-js/sdk'
import {
  A2AError,
  ExtendedAgentCardNotConfiguredError,
  PushNotificationNotSupportedError,
  RequestMalformedError,
  TaskNotCancelableError,
  TaskNotFoundError,
  UnsupportedOperationError,
} from '@a2a-js/sdk/errors'
import type { A2ARequestHandler } from '@a2a-js/sdk/server'
import type { CleanText } from '#specs/protocol/shown-text.ts'
import { ServiceError, type ServiceEvent } from '../../client/index.ts'
import { followRun, type RunService, type RunView, viewRun } from '../run-view/run-view.ts'
import { a2aMark, takeMessage, viewTask } from './messages.ts'
import { agentMessage, artifactsOf, contextField, contextOf, statusOf, taskOf, text } from './tasks.ts'

export interface A2aParts {
  readonly service: RunService
  readonly card: AgentCard
  readonly clean: CleanText
  /** Aborted when the client is gone. */
  readonly signal: AbortSignal
  readonly log: (line: Readonly<Record<string, unknown>>) => void
}

/** Longest time that a timer of Node can wait. */
const longestMs = 2 ** 31 - 1
const cancelWaitMs = 10_000
const pageSizeMax = 100
const pageSizeDefault = 50
const countPageRuns = 1_000
/** Of tasks with artifacts in one answer; the one that goes over it is the last. */
const pageMaxBytes = 4 * 1024 * 1024

const statuses: Partial<Readonly<Record<TaskState, string>>> = {
  [TaskState.TASK_STATE_SUBMITTED]: 'queued',
  [TaskState.TASK_STATE_WORKING]: 'running',
  [TaskState.TASK_STATE_INPUT_REQUIRED]: 'waiting',
  [TaskState.TASK_STATE_COMPLETED]: 'completed',
  [TaskState.TASK_STATE_FAILED]: 'failed',
  [TaskState.TASK_STATE_CANCELED]: 'cancelled',
}

export class A2aHandler implements A2ARequestHandler {
  readonly #parts: A2aParts

  constructor(parts: A2aParts) {
    this.#parts = parts
  }

  async getAgentCard(): Promise<AgentCard> {
    return this.#parts.card
  }

  async getAuthenticatedExtendedAgentCard(): Promise<AgentCard> {
    throw new ExtendedAgentCardNotConfiguredError('There is no extended agent card')
  }

  async sendMessage(request: SendMessageRequest): Promise<Task> {
    return await this.#guard(async () => {
      const runId = await this.#take(request)
      if (request.configuration?.returnImmediately !== true) await this.#untilTurn(runId)
      return await this.#taskWithArtifacts(await viewRun(this.#parts.service, runId))
    })
  }

  async *sendMessageStream(request: SendMessageRequest): AsyncGenerator<StreamResponse, void, undefined> {
    const since = Date.now()
    const runId = await this.#guard(() => this.#take(request))
    yield* this.#stream(runId, since)
  }

  async *resubscribe({ id }: SubscribeToTaskRequest): AsyncGenerator<StreamResponse, void, undefined> {
    const since = Date.now()
    const { run } = await this.#guard(() => viewTask(this.#parts.service, id))
    if (run.end !== null) throw new UnsupportedOperationError('The task is over: get it instead')
    yield* this.#stream(id, since)
  }

  async getTask({ id }: GetTaskRequest): Promise<Task> {
    return await this.#guard(
      async () => await this.#taskWithArtifacts(await viewTask(this.#parts.service, id)),
    )
  }

  async cancelTask({ id }: CancelTaskRequest): Promise<Task> {
    return await this.#guard(async () => {
      const { service, clean } = this.#parts
      const { run } = await viewTask(service, id)
      if (run.end !== null) throw new TaskNotCancelableError('The task is over')
      await service.call('cancelRun', { params: { run: id }, body: {} })
      // One that ends in order takes a while; its cancellation is certain.
      const query = { waitMs: cancelWaitMs }
      await service.call('getResult', { params: { run: id }, query }).catch((error: unknown) => {
        if (!(error instanceof ServiceError) || error.status !== 409) throw error
      })
      return taskOf(await viewRun(service, id), clean)
    })
  }

  async listTasks(request: ListTasksRequest): Promise<ListTasksResponse> {
    return await this.#guard(async () => {
      const { contextId, status, pageToken, statusTimestampAfter } = request
      const { pageSize = pageSizeDefault, includeArtifacts = false } = request
      if (pageSize < 1 || pageSize > pageSizeMax)
        throw new RequestMalformedError(`pageSize: expected 1 to ${pageSizeMax}`)
      if (statusTimestampAfter !== undefined)
        throw new UnsupportedOperationError('statusTimestampAfter is not supported')
      const filter = filterOf(contextId, status)
      const page = { pageSize, pageToken }
      const found = await (includeArtifacts ? this.#wholeTasks(filter, page) : this.#tasks(filter, page))
      return { ...found, pageSize, totalSize: await this.#count(filter) }
    })
  }

  async createTaskPushNotificationConfig(): Promise<never> {
    throw noPush()
  }

  async getTaskPushNotificationConfig(): Promise<never> {
    throw noPush()
  }

  async listTaskPushNotificationConfigs(): Promise<never> {
    throw noPush()
  }

  async deleteTaskPushNotificationConfig(): Promise<never> {
    throw noPush()
  }

  async #take(request: SendMessageRequest): Promise<string> {
    if (request.configuration?.taskPushNotificationConfig !== undefined) throw noPush()
    return await takeMessage(this.#parts.service, request)
  }

  /** Until the run has ended or asks, or nobody carries it out. */
  async #untilTurn(runId: string): Promise<void> {
    const { service, signal } = this.#parts
    const onEvents = async (): Promise<void> => undefined
    await followRun(service, runId, { waitMs: longestMs, from: 1, signal, onEvents, leavesIdle: true })
  }

  /** The task, what the agent says from a time on, and the end: a question, or that of the run. @param since ms since 1970 */
  async *#stream(runId: string, since: number): AsyncGenerator<StreamResponse, void, undefined> {
    const { service, clean, signal } = this.#parts
    const first = await this.#guard(() => viewRun(service, runId))
    yield { payload: { $case: 'task', value: taskOf(first, clean) } }
    if (first.result === undefined && first.questions.length === 0)
      for await (const item of this.#guardAll(service.events(runId, { signal }))) {
        if (item.source !== 'delta' && item.at >= since) yield* saidBy(first, item)
        const hasAsked = item.source === 'host' && item.event.type === 'approval-request'
        if (hasAsked && (await this.#guard(() => viewRun(service, runId))).questions.length > 0) break
      }
    if (!signal.aborted) yield* await this.#guard(() => this.#endOf(runId))
  }

  async #endOf(runId: string): Promise<StreamResponse[]> {
    const { service, clean } = this.#parts
    const view = await viewRun(service, runId)
    const about = { taskId: runId, contextId: contextOf(view), metadata: undefined }
    const artifacts = (await artifactsOf(service, view)).map((artifact): StreamResponse => {
      const value = { ...about, artifact, append: false, lastChunk: true }
      return { payload: { $case: 'artifactUpdate', value } }
    })
    const status = statusOf(view, clean)
    return [...artifacts, { payload: { $case: 'statusUpdate', value: { ...about, status } } }]
  }

  async #taskWithArtifacts(view: RunView): Promise<Task> {
    return taskOf(view, this.#parts.clean, await artifactsOf(this.#parts.service, view))
  }

  async #tasks(filter: Filter, page: TaskPage): Promise<FoundTasks> {
    const { service, clean } = this.#parts
    const { runs, nextPageToken } = await this.#runs(filter, page)
    const tasks = runs.map(async (run) =>
      taskOf(
        run.pendingApprovals > 0 ? await viewRun(service, run.id) : { run, result: undefined, questions: [] },
        clean,
      ),
    )
    return { tasks: await Promise.all(tasks), nextPageToken }
  }

  /** Each with its patch, so one after another until they are long. */
  async #wholeTasks(filter: Filter, { pageSize, pageToken }: TaskPage): Promise<FoundTasks> {
    const tasks: Task[] = []
    let next = pageToken
    let bytes = 0
    do {
      const { runs, nextPageToken } = await this.#runs(filter, { pageSize: 1, pageToken: next })
      for (const { id } of runs) {
        const task = await this.#taskWithArtifacts(await viewRun(this.#parts.service, id))
        bytes += Buffer.byteLength(JSON.stringify(task))
        tasks.push(task)
      }
      next = nextPageToken
    } while (next !== '' && tasks.length < pageSize && bytes < pageMaxBytes && !this.#parts.signal.aborted)
    return { tasks, nextPageToken: next }
  }

  async #runs(filter: Filter, { pageSize, pageToken }: TaskPage) {
    const query = { ...filter, limit: pageSize, ...(pageToken === '' ? {} : { cursor: pageToken }) }
    const { runs, nextCursor = '' } = await this.#parts.service.call('listRuns', { query })
    return { runs, nextPageToken: nextCursor }
  }

  async #count(filter: Filter): Promise<number> {
    let count = 0
    let cursor: string | undefined
    do {
      const query = { ...filter, limit: countPageRuns, ...(cursor === undefined ? {} : { cursor }) }
      const page = await this.#parts.service.call('listRuns', { query })
      count += page.runs.length
      cursor = page.nextCursor
    } while (cursor !== undefined)
    return count
  }

  async #guard<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      throw this.#errorOf(error)
    }
  }

  async *#guardAll<T>(items: AsyncIterable<T>): AsyncGenerator<T> {
    try {
      yield* items
    } catch (error) {
      throw this.#errorOf(error)
    }
  }

  /** The library sends the message of any error, so those of faults are for the log alone. */
  #errorOf(error: unknown): unknown {
    if (error instanceof A2AError) return error
    if (error instanceof ServiceError) {
      const { status, message } = error
      if (status === 404) return new TaskNotFoundError('Task not found')
      if (status === 400 || status === 422) return new RequestMalformedError(message)
      return status === 403 || status === 409 ? new UnsupportedOperationError(message) : new Error(message)
    }
    this.#parts.log({ level: 'error', message: 'a request of A2A failed', cause: String(error) })
    return new Error('an internal error; the log of the service has the details')
  }
}

type Filter = ReturnType<typeof filterOf>

interface TaskPage {
  readonly pageSize: number
  /** Empty: the first. */
  readonly pageToken: string
}

type FoundTasks = Pick<ListTasksResponse, 'tasks' | 'nextPageToken'>

function filterOf(contextId: string, status: TaskState) {
  const name = statuses[status]
  if (status !== TaskState.TASK_STATE_UNSPECIFIED && name === undefined)
    throw new UnsupportedOperationError('No task of Caisson has this state')
  const metadata = { ...a2aMark, ...(contextId === '' ? {} : { [contextField]: contextId }) }
  return { metadata: JSON.stringify(metadata) as never, ...(name === undefined ? {} : { status: name }) }
}

/** What the agent of the run itself says at the end of a turn. */
function saidBy(view: RunView, item: Exclude<ServiceEvent, { source: 'delta' }>): StreamResponse[] {
  if (item.source !== 'agent' || item.agentPath !== 'root' || item.event.type !== 'turn-end') return []
  const { text: said, stepId } = item.event
  if (said.trim() === '' || stepId === 'plan') return []
  const message = agentMessage(view, `${view.run.id}/${item.seq}`, [text(said)])
  const timestamp = new Date(item.at).toISOString()
  const status = { state: TaskState.TASK_STATE_WORKING, timestamp, message }
  const value = { taskId: view.run.id, contextId: contextOf(view), status, metadata: undefined }
  return [{ payload: { $case: 'statusUpdate', value } }]
}

function noPush(): PushNotificationNotSupportedError {
  return new PushNotificationNotSupportedError('The agent sends no push notifications; subscribe to the task')
}
