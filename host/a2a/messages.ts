/** What a calling agent sends: the task of a new run, words for one at work, and answers that name their question. */

import { createHash } from 'node:crypto'
import type { Message, SendMessageRequest } from '@a2a-js/sdk'
import {
  ContentTypeNotSupportedError,
  RequestMalformedError,
  TaskNotFoundError,
  UnsupportedOperationError,
} from '@a2a-js/sdk/errors'
import * as z from 'zod'
import { digestOfQuestion } from '#specs/node/question-digest.ts'
import { describeIssues, plainMessages } from '#specs/protocol/issue-text.ts'
import { RunSettings } from '#specs/service/start-resources.ts'
import type { InputOf, routes } from '../../client/index.ts'
import { type Answer, readForm } from '../run-view/question-form.ts'
import { readQuestionName } from '../run-view/question-name.ts'
import {
  findQuestion,
  newestRunWith,
  type Question,
  type RouteCaller,
  type RunView,
  viewRun,
} from '../run-view/run-view.ts'
import { giveAnswer, sendOnce, wasTaken } from '../run-view/send-once.ts'
import { contextField, contextOf } from './tasks.ts'

/** Runs that A2A started for the caller; others are no tasks. */
export const a2aMark = { 'started-by': 'a2a' } as const
const messageField = 'a2a.message'
const idMaxChars = 200
const resultWaitMs = 10_000

/** One line without control and format characters. */
const Id = z
  .string()
  .max(idMaxChars)
  .regex(/^[^\p{Cc}\p{Cf}]+$/u)
const Reply = z.strictObject({ questionId: z.string().max(1_200), answer: z.unknown() })

interface Words {
  /** Without answers. */
  readonly text: string
  readonly answers: readonly z.infer<typeof Reply>[]
}

/** Does what a message asks for. @returns the run that it is about */
export async function takeMessage(service: RouteCaller, request: SendMessageRequest): Promise<string> {
  const { message } = request
  if (message === undefined || !Id.safeParse(message.messageId).success)
    throw new RequestMalformedError(`message.messageId: expected 1 to ${idMaxChars} characters in one line`)
  const words = wordsOf(message)
  if (message.taskId === '') return await startTask(service, request, message, words)
  const view = await viewTask(service, message.taskId)
  if (message.contextId !== '' && message.contextId !== contextOf(view))
    throw new RequestMalformedError('message.contextId: the task is of another context')
  await takeForTask(service, view, message, words)
  return view.run.id
}

/** A run that A2A started for the caller. @throws {TaskNotFoundError} also for one of somebody else */
export async function viewTask(service: RouteCaller, taskId: string): Promise<RunView> {
  if (!/^run-[0-9a-f]{20}$/.test(taskId)) throw new TaskNotFoundError('Task not found')
  const view = await viewRun(service, taskId)
  if (view.run.metadata?.['started-by'] !== a2aMark['started-by'])
    throw new TaskNotFoundError('Task not found')
  return view
}

/** Answers are parts with `questionId`; whatever else is words, which answer nothing. */
function wordsOf({ parts }: Message): Words {
  const answers: z.infer<typeof Reply>[] = []
  const texts: string[] = []
  for (const { content } of parts) {
    if (content?.$case === 'text') texts.push(content.value)
    else if (content?.$case === 'data') {
      if (isReply(content.value)) answers.push(readReplyPart(content.value))
      else texts.push(JSON.stringify(content.value))
    } else
      throw new ContentTypeNotSupportedError('Send parts of text or data; files belong into the workspace.')
  }
  return { text: texts.join('\n\n'), answers }
}

function isReply(value: unknown): boolean {
  return typeof value === 'object' && value !== null && 'questionId' in value
}

function readReplyPart(value: unknown): z.infer<typeof Reply> {
  const reply = Reply.safeParse(value)
  if (reply.success) return reply.data
  throw new RequestMalformedError('An answer has questionId and answer, and nothing else.')
}

/** Checks all answers before any counts. */
async function takeForTask(
  service: RouteCaller,
  { run }: RunView,
  message: Message,
  { text, answers }: Words,
): Promise<void> {
  const by = `A2A message ${shortDigest(message.messageId)}`
  if (run.end !== null) {
    // One that comes again is no fault.
    if (await wasTaken(service, run.id, by)) return
    throw new UnsupportedOperationError(
      `The task is over (${run.end.outcome}). Start another one in its context.`,
    )
  }
  const known = []
  for (const answer of answers) known.push(await readReply(service, run.id, answer))
  for (const { question, answer } of known.flatMap((one) => one ?? []))
    await giveAnswer(service, question, answer, 'agent over A2A')
  if (text.trim() !== '') await sendOnce(service, run.id, text, by)
}

/** Undefined: it was decided already. */
async function readReply(
  service: RouteCaller,
  runId: string,
  { questionId, answer }: z.infer<typeof Reply>,
): Promise<{ readonly question: Question; readonly answer: Answer } | undefined> {
  const name = readQuestionName(questionId)
  if (name === undefined || name.runId !== runId)
    throw new RequestMalformedError('questionId: expected that of a question of this task')
  const question = await findQuestion(service, runId, name.approvalId)
  if (question === 'forbidden')
    throw new UnsupportedOperationError('The key may not answer questions: it lacks the scope approve.')
  if (question === 'gone') return undefined
  if (digestOfQuestion(question) !== name.digest)
    throw new RequestMalformedError('questionId: the question has changed since; get the task to see it')
  const read = readForm(question, answer)
  if (typeof read === 'string') throw new RequestMalformedError(`answer: ${read}`)
  return { question, answer: read }
}

async function startTask(
  service: RouteCaller,
  { metadata }: SendMessageRequest,
  message: Message,
  { text, answers }: Words,
): Promise<string> {
  if (answers.length > 0) throw new RequestMalformedError('message.taskId: an answer needs its task')
  if (text.trim() === '') throw new RequestMalformedError('message.parts: expected a task in words')
  const settings = z.object({ caisson: RunSettings.optional() }).safeParse(metadata ?? {}, plainMessages)
  if (!settings.success)
    throw new RequestMalformedError(`metadata: ${describeIssues(settings.error, { root: 'the metadata' })}`)
  const digest = shortDigest(message.messageId)
  // The same message starts one task, whatever else changed meanwhile.
  const known = await newestRunWith(service, { ...a2aMark, [messageField]: digest })
  if (known !== undefined) return known.id
  if (message.contextId !== '' && !Id.safeParse(message.contextId).success)
    throw new RequestMalformedError(
      `message.contextId: expected at most ${idMaxChars} characters in one line`,
    )
  const contextId = message.contextId === '' ? `context-${digest}` : message.contextId
  const before = await newestRunWith(
    service,
    { ...a2aMark, [contextField]: contextId },
    ({ end, problem }) => end !== null && problem === undefined,
  )
  if (before !== undefined)
    await service.call('getResult', { params: { run: before.id }, query: { waitMs: resultWaitMs } })
  const { metadata: given = {}, ...rest } = settings.data.caisson ?? {}
  const body = {
    ...rest,
    prompt: text,
    metadata: { ...given, ...a2aMark, [contextField]: contextId, [messageField]: digest },
    ...(before === undefined ? {} : { continue: before.id }),
  } as InputOf<(typeof routes)['createRun']['body']>
  return (await service.call('createRun', { body, idempotencyKey: `a2a ${digest}` })).id
}

function shortDigest(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 32)
}
