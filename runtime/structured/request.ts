/**
 * Requests an answer of a given form, in the strictest way that the server accepts: `response_format`, a forced call,
 * or a prompt. Repairs it when unambiguous, and asks again with the errors at most twice. Rejected ways are
 * remembered for each model.
 */
import { CaissonError } from '#specs/errors.ts'
import type { JsonSchema } from '#specs/node/json-schema.ts'
import type { ModelError, ModelErrorCode } from '#specs/node/model-protocols/model-error.ts'
import type { Result } from '#specs/protocol/error.ts'
import { addUsage, noUsage, type Usage } from '#specs/protocol/task.ts'
import { asObjectSchema } from '../arguments/json-schema.ts'
import type { ChatMessage } from '../llm/messages.ts'
import type { Model, Turn, TurnHooks, TurnRequest } from '../llm/model.ts'
import { parseModelJson } from '../llm/repair.ts'

/** Ways to request a form, strictest first. */
type AnswerForm = 'response_format' | 'tool' | 'prompt'

const allForms: readonly AnswerForm[] = ['response_format', 'tool', 'prompt']
const structuredMaxRequests = 3

interface StructuredRequest<T> {
  readonly model: Model
  /** Key of what is remembered of the model's server; default the model itself. */
  readonly server?: object
  /** The conversation that the answer concludes. The last message is not an assistant's. */
  readonly messages: readonly ChatMessage[]
  /** Name of the form and of its tool: 1 to 64 of A-Z a-z 0-9 _ - */
  readonly name: string
  readonly description: string
  readonly schema: JsonSchema
  /** Parses and repairs an answer's JSON value; the error describes the problems for the model. */
  read(value: unknown): Result<ReadAnswer<T>, string> | Promise<Result<ReadAnswer<T>, string>>
  readonly hooks: TurnHooks
  /** The ways to try, in order; default all. */
  readonly forms?: readonly AnswerForm[]
  /** Whether the messages already describe the form; absent: a description is appended. */
  readonly isFormDescribed?: boolean
  /** Maximum requests whose answer is parsed, including the first; default 3. */
  readonly maxRequests?: number
  /** Receives every answer; may change the ids of its calls. */
  onTurn?(turn: Turn, request: number): Promise<Turn>
}

interface ReadAnswer<T> {
  readonly value: T
  /** Descriptions of the repairs. */
  readonly corrections: readonly string[]
}

interface StructuredAnswer<T> extends ReadAnswer<T> {
  /** Sum over all requests. */
  readonly usage: Usage
  readonly requests: number
}

export interface StructuredFailure {
  readonly kind: 'model' | 'refused' | 'invalid' | 'cancelled'
  readonly message: string
  /** Set with the kind `model`. */
  readonly error?: ModelError
  readonly usage: Usage
}

/** Failures by which a server rejects the form of a request. */
const formRefusals: ReadonlySet<ModelErrorCode> = new Set([
  'invalid_request',
  'unprocessable',
  'unsupported',
  'refused',
])

/** The ways that a model's server has rejected. */
const refusedForms = new WeakMap<object, Set<AnswerForm>>()

/** Asks until an answer has the form, or returns why there is none. Never rejects for errors of model or server. */
export async function requestStructured<T>(
  request: StructuredRequest<T>,
): Promise<Result<StructuredAnswer<T>, StructuredFailure>> {
  const messages = [...request.messages]
  const maxRequests = request.maxRequests ?? structuredMaxRequests
  let usage = noUsage
  let problem = 'no answer was given'
  const failure = (
    kind: StructuredFailure['kind'],
    message: string,
    error?: ModelError,
  ): { ok: false; error: StructuredFailure } => ({
    ok: false,
    error: { kind, message, usage, ...(error === undefined ? {} : { error }) },
  })
  for (let number = 1; number <= maxRequests; number++) {
    const answer = await askInForm(request, messages)
    if (request.hooks.signal.aborted) return failure('cancelled', 'interrupted')
    if (!answer.ok) return failure('model', answer.error.message, answer.error)
    usage = addUsage(usage, answer.value.usage)
    const turn = (await request.onTurn?.(answer.value, number)) ?? answer.value
    if (turn.finishReason === 'content_filter')
      return failure('refused', "the model's provider held the answer back (content filter)")
    const read = await readTurn(turn, request)
    if (read.ok) return { ok: true, value: { ...read.value, usage, requests: number } }
    problem = read.error
    messages.push(...answerAgain(turn, problem))
  }
  return failure('invalid', `no valid answer in ${maxRequests} attempts; the last problems: ${problem}`)
}

/** Sends one request in the strictest form not known to be rejected; a rejection tries the next at once. */
async function askInForm<T>(
  request: StructuredRequest<T>,
  messages: readonly ChatMessage[],
): Promise<Result<Turn, ModelError>> {
  const forms = request.forms ?? allForms
  const server = request.server ?? request.model
  const refused = refusedForms.get(server) ?? new Set<AnswerForm>()
  const open = forms.filter((form, index) => index === forms.length - 1 || !refused.has(form))
  const tried: AnswerForm[] = []
  for (const form of open) {
    const answer = await request.model(toTurnRequest(form, request, messages), request.hooks)
    const isLast = form === open.at(-1)
    if (!answer.ok && !isLast && formRefusals.has(answer.error.code)) {
      tried.push(form)
      continue
    }
    // If the plainest form is rejected too, the form was not the cause.
    if (answer.ok && tried.length > 0) refusedForms.set(server, new Set([...refused, ...tried]))
    return answer
  }
  throw new CaissonError('invalid_options', 'requestStructured needs at least one form')
}

function toTurnRequest<T>(
  form: AnswerForm,
  request: StructuredRequest<T>,
  messages: readonly ChatMessage[],
): TurnRequest {
  const { name, description } = request
  const { schema } = asObjectSchema(request.schema)
  const described = request.isFormDescribed === true ? messages : describeForm(messages, form, request)
  if (form === 'prompt') return { messages: described, tools: [] }
  if (form === 'response_format') return { messages: described, tools: [], responseFormat: { name, schema } }
  return { messages: described, tools: [{ name, description, parameters: schema }], toolChoice: { name } }
}

/** The form is described in text too: a gateway may have to omit the field that requests it. */
function describeForm<T>(
  messages: readonly ChatMessage[],
  form: AnswerForm,
  request: StructuredRequest<T>,
): ChatMessage[] {
  const { schema } = asObjectSchema(request.schema)
  const how =
    form === 'tool'
      ? `Answer with one call of ${request.name}`
      : 'Answer with JSON alone, without any other word'
  const words = `${how}; what you give must fit this JSON schema (${request.description}):\n${JSON.stringify(schema)}`
  const place = request.messages.length - 1
  return messages.map((message, index) =>
    index === place ? { ...message, content: `${message.content}\n\n${words}` } : message,
  )
}

/** The answer in a turn: the requested call, else any call, else the text. */
async function readTurn<T>(
  turn: Turn,
  request: StructuredRequest<T>,
): Promise<Result<ReadAnswer<T>, string>> {
  const wanted = plainName(request.name)
  const call = turn.toolCalls.find(({ name }) => plainName(name).endsWith(wanted)) ?? turn.toolCalls[0]
  const source = call === undefined ? turn.text : call.argumentsText
  if (source.trim() === '') return { ok: false, error: 'no answer was given' }
  const parsed = parseModelJson(source)
  if (!parsed.ok) return parsed
  const read = await readValue(parsed.value.value, request)
  if (!read.ok) return read
  return {
    ok: true,
    value: { ...read.value, corrections: [...parsed.value.corrections, ...read.value.corrections] },
  }
}

/** The answer itself, unwrapped if it was requested inside an object. */
async function readValue<T>(
  value: unknown,
  request: StructuredRequest<T>,
): Promise<Result<ReadAnswer<T>, string>> {
  if (!isWrapper(value) || !asObjectSchema(request.schema).isWrapped) return request.read(value)
  const inner = await request.read(value.value)
  return inner.ok ? inner : request.read(value)
}

function isWrapper(value: unknown): value is { value: unknown } {
  return typeof value === 'object' && value !== null && Object.keys(value).join() === 'value'
}

function plainName(name: string): string {
  return name.toLowerCase().replaceAll(/[^a-z0-9]/g, '')
}

/** Maximum characters of an invalid answer repeated to the model: more than most replies. */
const shownAgainMaxChars = 128 * 1024

/** An invalid answer and what is wrong with it. Every call of it gets a result, so that the history stays valid. */
export function answerAgain(turn: Turn, problem: string): ChatMessage[] {
  const content = `That is not valid: ${problem}. Answer again, with all of it, corrected.`
  const { reasoning } = turn
  const text = shorten(turn.text)
  // Truncated arguments are not JSON, and are sent as empty ones.
  const toolCalls = turn.toolCalls.map((call) => ({ ...call, argumentsText: shorten(call.argumentsText) }))
  const thoughts = reasoning === '' ? {} : { reasoning: shorten(reasoning) }
  const again: ChatMessage[] =
    turn.toolCalls.length === 0
      ? [{ role: 'user', content }]
      : turn.toolCalls.map(({ id }) => ({ role: 'tool', callId: id, content }))
  return [{ role: 'assistant', content: text, toolCalls, ...thoughts }, ...again]
}

function shorten(said: string): string {
  return said.length <= shownAgainMaxChars ? said : `${said.slice(0, shownAgainMaxChars).toWellFormed()} […]`
}
