/**
 * An answer of a given form out of a model: asked for in the strictest way that its server takes (`response_format`, a call
 * that must be made, words alone), mended where that is certain, and asked again with what is wrong, at most twice. Which way
 * a server takes is learned from its refusals and kept for each model.
 */
import { CaissonError } from '#specs/errors.ts'
import type { Result } from '#specs/protocol/error.ts'
import { addUsage, noUsage, type Usage } from '#specs/protocol/task.ts'
import { asObjectSchema, type JsonSchema } from '../arguments/json-schema.ts'
import type { Turn } from '../llm/client.ts'
import type { ModelError, ModelErrorCode } from '../llm/errors.ts'
import type { ChatMessage } from '../llm/messages.ts'
import type { Model, TurnHooks, TurnRequest } from '../llm/model.ts'
import { parseModelJson } from '../llm/repair.ts'

/** How an answer's form is asked for, the strictest first. */
export type AnswerForm = 'response_format' | 'tool' | 'prompt'

const allForms: readonly AnswerForm[] = ['response_format', 'tool', 'prompt']
export const structuredMaxRequests = 3

export interface StructuredRequest<T> {
  readonly model: Model
  /** For what is remembered of the model's server; default the model itself. */
  readonly server?: object
  /** What the answer is about. The last one is not an assistant's. */
  readonly messages: readonly ChatMessage[]
  /** Of the form, and of the tool that stands for it: 1 to 64 of A-Z a-z 0-9 _ - */
  readonly name: string
  readonly description: string
  readonly schema: JsonSchema
  /** The answer in a JSON value, with what is certain put right; or what is wrong, in words for the model. */
  read(value: unknown): Result<ReadAnswer<T>, string> | Promise<Result<ReadAnswer<T>, string>>
  readonly hooks: TurnHooks
  /** The ways to try, in this order; default all. */
  readonly forms?: readonly AnswerForm[]
  /** Whether the messages say already how to answer; absent: the form is told behind them. */
  readonly isFormDescribed?: boolean
  /** Requests whose answer was read, the first included; default 3. */
  readonly maxRequests?: number
  /** Sees every answer; its calls may be given other ids. */
  onTurn?(turn: Turn, request: number): Promise<Turn>
}

export interface ReadAnswer<T> {
  readonly value: T
  /** What was put right, in words. */
  readonly corrections: readonly string[]
}

export interface StructuredAnswer<T> extends ReadAnswer<T> {
  /** Of all requests. */
  readonly usage: Usage
  readonly requests: number
}

export interface StructuredFailure {
  readonly kind: 'model' | 'refused' | 'invalid' | 'cancelled'
  readonly message: string
  /** With the kind `model`. */
  readonly error?: ModelError
  readonly usage: Usage
}

/** Failures by which a server says that it does not take a request's form. */
const formRefusals: ReadonlySet<ModelErrorCode> = new Set([
  'invalid_request',
  'unprocessable',
  'unsupported',
  'refused',
])

/** The ways that a model's server has refused. */
const refusedForms = new WeakMap<object, Set<AnswerForm>>()

/** Asks until there is an answer of the form, or says why there is none. Never rejects for what a model or a server does. */
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
    askAgain(messages, turn, problem)
  }
  return failure('invalid', `no valid answer in ${maxRequests} attempts; the last problems: ${problem}`)
}

/** One request in the strictest form that is not known to be refused; a refusal leads on to the next at once. */
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
    // Where the plainest form is refused as well it was not the form.
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

/** The form stands in words too: a gateway may have to leave the field out that asks for it. */
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

/** The answer in a turn: of the call that was asked for, else of any call, else of its text. */
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

/** The answer itself, or in the coat that it was asked for in. */
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

/** Of an invalid answer, what the model is shown again at most: more than most models can say in one reply. */
const shownAgainMaxChars = 128 * 1024

/** Every call of the invalid answer gets a result, so that the history stays valid. */
function askAgain(messages: ChatMessage[], turn: Turn, problem: string): void {
  const content = `That is not valid: ${problem}. Answer again, with all of it, corrected.`
  const { reasoning } = turn
  const text = shorten(turn.text)
  // Cut arguments are no JSON any more, and are sent as none.
  const toolCalls = turn.toolCalls.map((call) => ({ ...call, argumentsText: shorten(call.argumentsText) }))
  const thoughts = reasoning === '' ? {} : { reasoning: shorten(reasoning) }
  messages.push({ role: 'assistant', content: text, toolCalls, ...thoughts })
  if (turn.toolCalls.length === 0) messages.push({ role: 'user', content })
  for (const { id } of turn.toolCalls) messages.push({ role: 'tool', callId: id, content })
}

function shorten(said: string): string {
  return said.length <= shownAgainMaxChars ? said : `${said.slice(0, shownAgainMaxChars).toWellFormed()} […]`
}
