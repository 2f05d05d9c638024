/** Runs as tasks of A2A: the state, what a task waits for, and what it brought. All texts of a run are untrusted. */

import {
  type Artifact,
  type Message,
  type Part,
  Role,
  type Task,
  TaskState,
  type TaskStatus,
} from '@a2a-js/sdk'
import type { CleanText } from '#specs/protocol/shown-text.ts'
import { ServiceError } from '../../client/index.ts'
import { fitsForm, formOf } from '../run-view/question-form.ts'
import { nameOfQuestion } from '../run-view/question-name.ts'
import type { Question, RouteCaller, RunView } from '../run-view/run-view.ts'

export const contextField = 'a2a.context'
/** Of one artifact; the rest is read by the service's own routes. */
const patchMaxChars = 256 * 1024

export type TaskView = Pick<RunView, 'run' | 'result' | 'questions'>

export function taskOf(view: TaskView, clean: CleanText, artifacts: Artifact[] = []): Task {
  const { run } = view
  return {
    ...{ id: run.id, contextId: contextOf(view), status: statusOf(view, clean), artifacts, history: [] },
    metadata: { caisson: { status: run.status, costUsd: run.costUsd, changes: run.changes } },
  }
}

export function contextOf({ run }: Pick<TaskView, 'run'>): string {
  return run.metadata?.[contextField] ?? run.id
}

export function statusOf(view: TaskView, clean: CleanText): TaskStatus {
  const { run, questions } = view
  const state = stateOf(view)
  const { since = run.startedAt } = run
  const timestamp = run.end === null && since > 0 ? new Date(since).toISOString() : undefined
  if (state === TaskState.TASK_STATE_INPUT_REQUIRED) {
    const parts = questions.flatMap((question) => partsOf(question, clean))
    return { state, timestamp, message: agentMessage(view, `${run.id}/questions`, parts) }
  }
  const why = run.end?.message ?? ''
  const message = why === '' ? undefined : agentMessage(view, `${run.id}/end`, [text(why)])
  return { state, timestamp, message }
}

export function stateOf({ run: { end, status }, questions }: TaskView): TaskState {
  if (end?.outcome === 'completed') return TaskState.TASK_STATE_COMPLETED
  if (end?.outcome === 'cancelled') return TaskState.TASK_STATE_CANCELED
  if (end !== null) return TaskState.TASK_STATE_FAILED
  if (questions.length > 0) return TaskState.TASK_STATE_INPUT_REQUIRED
  return status === 'queued' ? TaskState.TASK_STATE_SUBMITTED : TaskState.TASK_STATE_WORKING
}

/** The question in words, and what an answer names. */
function partsOf(question: Question, clean: CleanText): Part[] {
  const { message, requestedSchema } = formOf(question, clean)
  const { tool } = question.approval
  const value = { questionId: nameOfQuestion(question), tool }
  if (!fitsForm(question))
    return [text('A question is too long to be answered here: a person answers it in Caisson.'), data(value)]
  return [text(message), data({ ...value, answerSchema: requestedSchema })]
}

/** The answer and the changes of an ended run; none of another. */
export async function artifactsOf(service: RouteCaller, { run, result }: TaskView): Promise<Artifact[]> {
  if (result === undefined) return []
  const answer = artifact('answer', 'Answer of the agent', [text(result.summary)])
  if ((result.changes?.entries ?? 0) === 0) return [answer]
  const patch = await patchOf(service, run.id)
  const shown = patch.slice(0, patchMaxChars).toWellFormed()
  const rest =
    patch.length > shown.length
      ? [text(`${patch.length - shown.length} more characters: GET /v1/runs/${run.id}/changes.patch`)]
      : []
  const parts = [data(result.changes), { ...text(shown), mediaType: 'text/x-diff' }, ...rest]
  return [answer, artifact('changes', 'Changes of files, which a person applies', parts)]
}

/** Empty where the changes cannot be read any more. */
async function patchOf(service: RouteCaller, runId: string): Promise<string> {
  try {
    return await service.call('getPatch', { params: { run: runId } })
  } catch (error) {
    if (error instanceof ServiceError) return ''
    throw error
  }
}

export function agentMessage(view: Pick<TaskView, 'run'>, messageId: string, parts: Part[]): Message {
  return {
    ...{ messageId, contextId: contextOf(view), taskId: view.run.id, role: Role.ROLE_AGENT, parts },
    ...{ metadata: undefined, extensions: [], referenceTaskIds: [] },
  }
}

function artifact(artifactId: string, name: string, parts: Part[]): Artifact {
  return { artifactId, name, description: '', parts, metadata: undefined, extensions: [] }
}

export function text(value: string): Part {
  return { content: { $case: 'text', value }, metadata: undefined, filename: '', mediaType: 'text/plain' }
}

function data(value: unknown): Part {
  return {
    content: { $case: 'data', value },
    ...{ metadata: undefined, filename: '', mediaType: 'application/json' },
  }
}
