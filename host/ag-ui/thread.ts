/**
 * Which run a request is about. The runs of a thread continue one another; a message of a person starts one run at most, and
 * an answer names the question that it is for. Whatever the front end sends has the authority of its key and no more.
 */

import { createHash } from 'node:crypto'
import { digestOfQuestion } from '#specs/node/question-digest.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { AgUiMessage, AgUiRequest, AgUiResume } from '#specs/service/ag-ui-resources.ts'
import type { RunResource } from '#specs/service/run-resources.ts'
import { type InputOf, type routes, ServiceError } from '../../client/index.ts'
import type { Answer } from '../run-view/question-form.ts'
import { type QuestionName, readQuestionName } from '../run-view/question-name.ts'
import { isGone, newestRunWith, type Question, questionsOf, type RunService } from '../run-view/run-view.ts'
import { giveAnswer, sendOnce, wasTaken } from '../run-view/send-once.ts'
import { answerOf } from './interrupts.ts'
import { textOf } from './known-messages.ts'

export interface ThreadParts {
  readonly service: RunService
  /** Whose threads these are: the same ID of another caller is another thread. */
  readonly callerId: string
}

/** The run that answers a request. */
export interface Turn {
  readonly runId: string
  /** Approvals that the front end was asked about before. */
  readonly seen: ReadonlySet<string>
}

/** A request that does not fit its thread; nothing was done. */
export class ThreadRefusal extends Error {
  readonly code: string

  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}

const threadField = 'ag-ui.thread'
const messageField = 'ag-ui.message'
const resultWaitMs = 10_000
const seenNothing: ReadonlySet<string> = new Set()

/**
 * Finds, starts or answers the run of a request. @throws {ThreadRefusal} for what does not fit the thread
 * @throws {ServiceError} as the routes refuse
 */
export async function openTurn(parts: ThreadParts, input: AgUiRequest): Promise<Turn> {
  requireNoTools(input)
  const thread = idOf(parts, input.threadId)
  const current = await newestRunWith(parts.service, { [threadField]: thread })
  const message = newestMessage(input)
  const resume = input.resume ?? []
  if (resume.length > 0) return await resumeRun(parts, { input, thread, message, resume })
  if (message === undefined || message.text.trim() === '')
    throw new ThreadRefusal('invalid_request', 'The messages have no text of a person (role user).')
  if (current?.metadata?.[messageField] === message.id) return { runId: current.id, seen: seenNothing }
  if (current !== undefined && current.end === null && current.problem === undefined) {
    await sendToRun(parts, current, message)
    return { runId: current.id, seen: seenNothing }
  }
  if (current !== undefined && (await wasTaken(parts.service, current.id, nameOfMessage(message))))
    return { runId: current.id, seen: seenNothing }
  return { runId: await startRun(parts, { input, thread, message, current }), seen: seenNothing }
}

/** An agent that calls a page would learn from the page what happened; its questions are what people answer. */
function requireNoTools({ tools }: AgUiRequest): void {
  const [first] = tools ?? []
  if (first !== undefined)
    throw new ThreadRefusal(
      'front_end_tools',
      `The agent cannot call tools of the front end, such as ${JSON.stringify(first.name.slice(0, 100))}. Send no tools.`,
    )
}

interface Asked {
  readonly input: AgUiRequest
  readonly thread: string
  readonly message: { readonly id: string; readonly text: string } | undefined
}

/** Checks all entries before any counts. */
async function resumeRun(
  parts: ThreadParts,
  { thread, message, resume }: Asked & { readonly resume: readonly AgUiResume[] },
): Promise<Turn> {
  const named = resume.map((entry) => ({ entry, name: nameOf(entry) }))
  const [runId = '', another] = [...new Set(named.map(({ name }) => name.runId))]
  if (another !== undefined)
    throw new ThreadRefusal('unknown_interrupt', 'The answers are for interrupts of several runs.')
  const run = await parts.service.call('getRun', { params: { run: runId } })
  if (run.metadata?.[threadField] !== thread)
    throw new ThreadRefusal('unknown_interrupt', 'The answers are for an interrupt of another thread.')
  const waiting = run.end === null ? await questionsOf(parts.service, runId) : []
  const answers: { readonly question: Question; readonly answer: Answer }[] = []
  const seen = new Set<string>()
  for (const { entry, name } of named) {
    const question = waiting.find(({ approval }) => approval.approvalId === name.approvalId)
    if (question === undefined) await requireDecided(parts, entry, name)
    if (question !== undefined || entry.status === 'resolved') seen.add(name.approvalId)
    if (question !== undefined && entry.status === 'resolved')
      answers.push({ question, answer: readAnswer(question, entry, name) })
  }
  for (const { question, answer } of answers)
    await giveAnswer(parts.service, question, answer, 'person at an AG-UI front end')
  const isNew = message !== undefined && run.metadata[messageField] !== message.id
  if (isNew && message.text.trim() !== '' && run.end === null) await steer(parts, run.id, message)
  return { runId, seen }
}

function nameOf({ interruptId }: AgUiResume): QuestionName {
  const name = readQuestionName(interruptId)
  if (name === undefined)
    throw new ThreadRefusal('unknown_interrupt', 'The ID of an interrupt is none that Caisson gave.')
  return name
}

/** An answer that comes again is no fault; one to a question that never was is. */
async function requireDecided(
  { service }: ThreadParts,
  { status }: AgUiResume,
  { runId, approvalId }: QuestionName,
): Promise<void> {
  // It decides nothing, so its question may be anything.
  if (status === 'cancelled') return
  try {
    await service.call('getApproval', { params: { run: runId, approval: approvalId } })
  } catch (error) {
    if (!(error instanceof ServiceError) || !isGone(error)) throw error
    if (error.status === 404)
      throw new ThreadRefusal('unknown_interrupt', 'The run has no question with the ID of the interrupt.')
  }
}

function readAnswer(question: Question, entry: AgUiResume, { digest }: QuestionName): Answer {
  if (digestOfQuestion(question) !== digest)
    throw new ThreadRefusal(
      'question_changed',
      'The question is another one than the interrupt showed. Nothing was answered; follow the thread to see it.',
    )
  const answer = answerOf(question, entry)
  if (typeof answer === 'string') throw new ThreadRefusal('invalid_answer', answer)
  return answer
}

/** To a run at work a message goes as any message of a person. A run that waits for an answer gets none in its place. */
async function sendToRun(
  parts: ThreadParts,
  { id, isLive, status }: RunResource,
  message: NonNullable<Asked['message']>,
): Promise<void> {
  const [question] = await questionsOf(parts.service, id)
  if (question !== undefined)
    throw new ThreadRefusal(
      'interrupts_pending',
      `${id} waits for an answer, and the message has none. Answer its interrupts with resume, or send the messages without the new one to see them.`,
    )
  if (!isLive)
    throw new ThreadRefusal(
      'run_not_at_work',
      `${id} is not at work; its status is ${status}. Continue it: POST /v1/runs/${id}/resume`,
    )
  await steer(parts, id, message)
}

/** Once for each message. */
async function steer(
  { service }: ThreadParts,
  runId: string,
  message: NonNullable<Asked['message']>,
): Promise<void> {
  await sendOnce(service, runId, message.text, nameOfMessage(message))
}

/** In the journal of the run that it was sent to. */
function nameOfMessage({ id }: NonNullable<Asked['message']>): string {
  return `AG-UI message ${id}`
}

async function startRun(
  { service }: ThreadParts,
  {
    input,
    thread,
    message,
    current,
  }: Asked & { readonly message: NonNullable<Asked['message']>; readonly current: RunResource | undefined },
): Promise<string> {
  const { metadata = {}, ...settings } = input.forwardedProps?.caisson ?? {}
  const before = current?.problem === undefined ? current : undefined
  if (before !== undefined) await untilOver(service, before.id)
  const body = {
    ...settings,
    prompt: message.text,
    metadata: { ...metadata, 'started-by': 'ag-ui', [threadField]: thread, [messageField]: message.id },
    context: contextOf(input, before === undefined),
    ...(before === undefined ? {} : { continue: before.id }),
  }
  const started = await service.call('createRun', {
    body: body as InputOf<(typeof routes)['createRun']['body']>,
    idempotencyKey: `ag-ui ${thread} ${message.id}`,
  })
  return started.id
}

/** A run can be continued a little after its last event. */
export async function untilOver(service: RunService, runId: string): Promise<void> {
  await service.call('getResult', { params: { run: runId }, query: { waitMs: resultWaitMs } })
}

/** What a front end says is a fact for the model, never an instruction of the system, whatever its role there. */
function contextOf({ context, messages }: AgUiRequest, isFirst: boolean) {
  const from = 'an AG-UI front end'
  const given = (context ?? []).map(({ description, value }, at) => [
    `AG-UI context ${at + 1}`,
    { from, text: cut(`${description}: ${value}`) },
  ])
  const earlier = isFirst
    ? messages
        .slice(
          0,
          messages.findLastIndex(({ role }) => role === 'user'),
        )
        .flatMap((message) => (textOf(message) === '' ? [] : [`${message.role}: ${textOf(message)}`]))
        .join('\n\n')
    : ''
  const section =
    earlier === '' ? [] : [['Earlier messages of the conversation', { from, text: cut(earlier) }]]
  return Object.fromEntries([...given, ...section])
}

function cut(text: string): string {
  return text.slice(0, limits.documentMaxChars).toWellFormed()
}

/** The newest message of a person, with a name of its own. @throws {ThreadRefusal} for parts that are no text */
function newestMessage({ messages }: AgUiRequest): Asked['message'] {
  const message = messages.findLast(({ role }) => role === 'user')
  if (message === undefined) return undefined
  const other = partsOf(message).find(({ type }) => type !== 'text')
  if (other !== undefined)
    throw new ThreadRefusal(
      'invalid_request',
      `The message has a part of the kind ${JSON.stringify(other.type)}. Send text; files belong into the workspace.`,
    )
  return { id: shortDigest(message.id), text: textOf(message) }
}

function partsOf({ content }: AgUiMessage): readonly { readonly type: string }[] {
  return Array.isArray(content) ? content : []
}

function idOf({ callerId }: ThreadParts, threadId: string): string {
  return shortDigest(`${callerId}\n${threadId}`)
}

function shortDigest(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 32)
}
