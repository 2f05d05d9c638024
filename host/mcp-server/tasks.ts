/**
 * A run as a task of the extension `io.modelcontextprotocol/tasks` (revision 2026-07-28): the id of the task is that of the
 * run, so that it is the same at each node and outlives each connection.
 */

import {
  type McpServer,
  ProtocolError,
  ProtocolErrorCode,
  type Result,
  type ServerContext,
} from '@modelcontextprotocol/server'
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { digestOfQuestion } from '#specs/node/question-digest.ts'
import { RunId } from '#specs/protocol/text.ts'
import type { RunResource } from '#specs/service/run-resources.ts'
import { ServiceError } from '../../client/index.ts'
import { fitsForm, formOf, readForm } from '../run-view/question-form.ts'
import { findQuestion, type Question, type RunView } from '../run-view/run-view.ts'
import { giveAnswer } from '../run-view/send-once.ts'
import { viewOwnRun } from './caller.ts'
import { capabilitiesOf, clientNameOf, hasTasks, showsForms } from './client-facts.ts'
import type { ToolOptions } from './conversation.ts'
import { runResult } from './results.ts'

const pollIntervalMs = 1_000
/** Questions of one answer of `tasks/get`. */
const questionsMax = 8

const TaskParams = z.looseObject({ taskId: z.string().max(200) })
/** The SDK takes them out of the parameters. */
const Responses = z
  .record(z.string().max(200), z.unknown())
  .refine((given) => Object.keys(given).length <= questionsMax)
const FormResponse = z.looseObject({
  action: z.enum(['accept', 'decline', 'cancel']),
  content: z.unknown().optional(),
})

export function addTasks(server: McpServer, options: ToolOptions): void {
  const guarded = async <T>(context: ServerContext, work: () => Promise<T>): Promise<T> => {
    if (!hasTasks(context))
      throw new ProtocolError(
        ProtocolErrorCode.MissingRequiredClientCapability,
        'the request does not declare the tasks extension',
        {
          requiredCapabilities: { extensions: { 'io.modelcontextprotocol/tasks': {} } },
        },
      )
    try {
      return await options.slots.use(options.caller.id, work)
    } catch (error) {
      throw protocolErrorOf(error)
    }
  }
  server.server.setRequestHandler('tasks/get', { params: TaskParams }, async ({ taskId }, context) =>
    guarded(
      context,
      async () =>
        await detailedTask(server, options, await viewOwnRun(options.caller, runOf(taskId)), context),
    ),
  )
  server.server.setRequestHandler('tasks/update', { params: TaskParams }, async ({ taskId }, context) =>
    guarded(context, async () => {
      const responses = Responses.safeParse(context.mcpReq.inputResponses ?? {})
      if (!responses.success)
        throw new ProtocolError(
          ProtocolErrorCode.InvalidParams,
          `inputResponses: expected at most ${questionsMax}, with the keys of inputRequests`,
        )
      const view = await viewOwnRun(options.caller, runOf(taskId))
      for (const [key, response] of Object.entries(responses.data))
        await takeResponse(options, view, key, response, clientNameOf(server, context))
      return {}
    }),
  )
  server.server.setRequestHandler('tasks/cancel', { params: TaskParams }, async ({ taskId }, context) =>
    guarded(context, async () => {
      const { run, result } = await viewOwnRun(options.caller, runOf(taskId))
      if (result === undefined)
        await options.caller.service.call('cancelRun', { params: { run: run.id }, body: {} })
      return {}
    }),
  )
}

/** What `run_task` answers to a client that has tasks. */
export function createdTask(run: RunResource): Result {
  return { resultType: 'task', ...taskOf(run, 'working') }
}

async function detailedTask(
  server: McpServer,
  options: ToolOptions,
  view: RunView,
  context: ServerContext,
): Promise<Result> {
  const { run, result } = view
  if (result !== undefined)
    return result.outcome === 'cancelled'
      ? taskOf(run, 'cancelled', result.message)
      : { ...taskOf(run, 'completed'), result: runResult(view) }
  const questions = showsForms(capabilitiesOf(server, context)) ? await askable(options, view.questions) : []
  if (questions.length === 0) return taskOf(run, 'working', run.status)
  const inputRequests = Object.fromEntries(
    questions.map((question) => [
      keyOf(question),
      { method: 'elicitation/create', params: { mode: 'form', ...formOf(question, options.clean) } },
    ]),
  )
  return { ...taskOf(run, 'input_required'), inputRequests }
}

async function askable({ caller }: ToolOptions, questions: readonly Question[]): Promise<Question[]> {
  const fitting = questions.filter(fitsForm).slice(0, questionsMax)
  const [first] = fitting
  if (first === undefined) return []
  const may = await findQuestion(caller.service, first.runId, first.approval.approvalId)
  return may === 'forbidden' ? [] : fitting
}

/** Names the question that the person saw: an answer to another one of the same id does not count. */
function keyOf(question: Question): string {
  return `${question.approval.approvalId}/${digestOfQuestion(question)}`
}

async function takeResponse(
  { caller }: ToolOptions,
  { questions }: RunView,
  key: string,
  response: unknown,
  clientName: string,
): Promise<void> {
  const question = questions.find((waiting) => keyOf(waiting) === key)
  const form = FormResponse.safeParse(response).data
  // What was answered already, or is declined, stays as it is.
  if (question === undefined || !fitsForm(question) || form?.action !== 'accept') return
  const answer = readForm(question, form.content)
  if (typeof answer === 'string') throw new ProtocolError(ProtocolErrorCode.InvalidParams, answer)
  await giveAnswer(caller.service, question, answer, `person at ${clientName}`)
}

function taskOf({ id, startedAt, since }: RunResource, status: string, statusMessage?: string): Result {
  return {
    ...{ taskId: id, status, ttlMs: null, pollIntervalMs },
    ...(statusMessage === undefined || statusMessage === '' ? {} : { statusMessage }),
    createdAt: new Date(startedAt).toISOString(),
    lastUpdatedAt: new Date(since ?? startedAt).toISOString(),
  }
}

function runOf(taskId: string): string {
  const runId = RunId.safeParse(taskId)
  if (runId.success) return runId.data
  throw new ProtocolError(ProtocolErrorCode.InvalidParams, 'Task not found')
}

function protocolErrorOf(error: unknown): unknown {
  if (error instanceof ServiceError && error.status === 404)
    return new ProtocolError(ProtocolErrorCode.InvalidParams, 'Task not found')
  if (error instanceof CaissonError && error.code === 'run_not_found')
    return new ProtocolError(ProtocolErrorCode.InvalidParams, 'Task not found')
  if (error instanceof ServiceError || error instanceof CaissonError)
    return new ProtocolError(ProtocolErrorCode.InternalError, error.message)
  return error
}
