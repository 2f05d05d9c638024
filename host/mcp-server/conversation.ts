/** One call about a run: takes the answer that the client comes back with, waits for the run, and asks what it asks. */
import {
  type CallToolResult,
  type InputRequiredResult,
  inputRequired,
  inputResponse,
  ProtocolError,
  ProtocolErrorCode,
  type RequestStateCodec,
  type ServerContext,
} from '@modelcontextprotocol/server'
import { digestOfQuestion } from '#specs/node/question-digest.ts'
import type { CleanText } from '#specs/protocol/shown-text.ts'
import type { JournalEvent } from '../../client/index.ts'
import { fitsForm, formOf, readForm } from '../run-view/question-form.ts'
import { findQuestion, followRun, type Question } from '../run-view/run-view.ts'
import { giveAnswer } from '../run-view/send-once.ts'
import { type CallSlots, type McpCaller, viewOwnRun } from './caller.ts'
import { QuestionState } from './request-state.ts'
import { runResult, type WaitingReason } from './results.ts'

export interface ConversationOptions {
  readonly caller: McpCaller
  readonly clean: CleanText
  readonly states: RequestStateCodec<QuestionState>
}

export interface ToolOptions extends ConversationOptions {
  readonly slots: CallSlots
  /** Workspace of tasks that name none. Absent: an empty one of the service. */
  readonly workspace?: string
}

export interface RunCall {
  readonly context: ServerContext
  readonly runId: string
  /** Digest of tool and arguments. */
  readonly call: string
  readonly waitMs: number
  /** Whether the client shows forms to its person. */
  readonly showsForms: boolean
  /** Name of the client, for the journal. */
  readonly clientName: string
  /** What the client came back with. Absent: the first round. */
  readonly state?: QuestionState
}

const key = 'answer'

/** The verified state of this round. @throws {ProtocolError} of another call's */
export function stateOf(context: ServerContext, call: string): QuestionState | undefined {
  const given = context.mcpReq.requestState<unknown>()
  if (given === undefined) return undefined
  const state = QuestionState.safeParse(given)
  if (state.success && state.data.call === call) return state.data
  throw new ProtocolError(ProtocolErrorCode.InvalidParams, 'Invalid or expired requestState', {
    reason: 'invalid_request_state',
  })
}

export async function converse(
  options: ConversationOptions,
  given: RunCall,
): Promise<CallToolResult | InputRequiredResult> {
  const { context, runId, state, waitMs } = given
  const { signal } = context.mcpReq
  const answered = state === undefined ? 'no answer' : await takeAnswer(options, given, state)
  if (typeof answered === 'object') return answered
  if (options.caller.seesMarkedRunsAlone) await viewOwnRun(options.caller, runId, signal)
  const seen = await followRun(options.caller.service, runId, {
    // A person who does not want to answer here is not asked again by the same call.
    waitMs: answered === 'declined' ? 0 : waitMs,
    ...{ from: state?.next ?? 1, signal },
    onEvents: (events) => reportProgress(context, events, options.clean),
  })
  const [question] = seen.questions
  if (question === undefined) return runResult(seen)
  const reason = answered === 'declined' ? answered : await whyNotHere(options, given, question)
  return reason === undefined ? await ask(options, given, question, seen.next) : runResult(seen, reason)
}

/** Why this client does not ask its person; undefined: it does. */
async function whyNotHere(
  { caller }: ConversationOptions,
  { showsForms }: RunCall,
  question: Question,
): Promise<WaitingReason | undefined> {
  if (!showsForms) return 'no_forms'
  if (!fitsForm(question)) return 'too_long'
  return (await findQuestion(caller.service, question.runId, question.approval.approvalId)) === 'forbidden'
    ? 'not_allowed'
    : undefined
}

async function ask(
  { clean, states }: ConversationOptions,
  { context, call }: RunCall,
  question: Question,
  next: number,
  again?: string,
): Promise<InputRequiredResult> {
  const { runId, approval } = question
  const state = { runId, approvalId: approval.approvalId, question: digestOfQuestion(question), call, next }
  const form = formOf(question, clean, again)
  return inputRequired({
    inputRequests: { [key]: inputRequired.elicit(form as Parameters<typeof inputRequired.elicit>[0]) },
    requestState: await states.mint(state, context),
  })
}

/** Gives the person's answer to the service; asks again where it has none. */
async function takeAnswer(
  options: ConversationOptions,
  given: RunCall,
  state: QuestionState,
): Promise<'answered' | 'declined' | InputRequiredResult> {
  const { context, clientName } = given
  const response = inputResponse(context.mcpReq.inputResponses, key)
  if (response.kind === 'elicit' && response.action !== 'accept') return 'declined'
  const question = await findQuestion(options.caller.service, state.runId, state.approvalId)
  // Somebody else answered it, or the agent withdrew it; a key that may not answer gets the run as it is.
  if (typeof question === 'string') return 'answered'
  // Another question than the person saw is asked anew.
  if (digestOfQuestion(question) !== state.question) return 'answered'
  if (response.kind !== 'elicit') return await ask(options, given, question, state.next)
  const answer = readForm(question, response.content)
  if (typeof answer === 'string') return await ask(options, given, question, state.next, answer)
  await giveAnswer(options.caller.service, question, answer, `person at ${clientName}`)
  return 'answered'
}

async function reportProgress(
  { mcpReq }: ServerContext,
  events: readonly JournalEvent[],
  clean: CleanText,
): Promise<void> {
  const progressToken = mcpReq._meta?.progressToken
  const last = events.at(-1)
  if (progressToken === undefined || last === undefined) return
  const params = { progressToken, progress: last.seq, message: progressMessage(events, clean) }
  // A client that is gone ends the call by its signal.
  await mcpReq.notify({ method: 'notifications/progress', params }).catch(() => undefined)
}

function progressMessage(events: readonly JournalEvent[], clean: CleanText): string {
  const last = events.at(-1)
  const tool = events.findLast(({ event }) => event.type === 'tool-start')?.event
  return tool?.type === 'tool-start'
    ? `${events.length} events; ${clean.line(tool.tool, 100)}`
    : `${last?.event.type ?? ''}`
}
