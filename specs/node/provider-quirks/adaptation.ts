/**
 * Adapts one chat request to one model server: builds a body in a form that every server accepts, without fields that
 * this one rejected, and learns from a rejection what to change. Always sends model, messages and tools.
 */
import {
  type CompletionMessage,
  type CompletionRequest,
  outputDefaultTokens,
} from '../../protocol/completion-request.ts'
import { capabilitiesOf, type ServerReport } from './capabilities.ts'
import { fitImages, sumImages } from './images.ts'
import type { ModelCapabilities } from './model-families.ts'
import { reasoningBudget, reasoningFields, switchReasoning } from './reasoning.ts'
import { type OptionalField, optionalFields, type RequestRejection, readRejection } from './rejection.ts'

/** Maximum changes of one request. */
const changesMaxCount = 6
/** Lower estimate of JSON bytes per token, which determines the context left for the answer. */
const leastBytesPerToken = 3
/** Generous estimate of a chat template's own tokens. */
const templateTokens = 256
/** Minimum tokens of a useful answer. */
const outputMinTokens = 256

/** A request may have more fields than a guest's, of the server's own API. */
export type AdaptableRequest = CompletionRequest & { readonly max_completion_tokens?: number | undefined }

export interface AdaptedRequest {
  /** As JSON. */
  readonly body: string
  /** Whether it asks for a stream. */
  readonly streamed: boolean
}

export class Adaptation {
  readonly #model: string
  readonly #unchanged: ReadonlySet<OptionalField | 'images'>
  #known: ServerReport
  #learned: ServerReport = {}
  /** Length of the conversation by the server's count; null: estimated. */
  #promptTokens: number | null = null
  #changes = 0
  /** Of the last body: included fields that a server might reject and a request can omit. */
  #optional: ReadonlySet<OptionalField> = new Set()
  #outputTokens = 0
  /** Whether the last body has images. */
  #hasImages = false

  /**
   * @param known what the server reported to earlier requests
   * @param unchanged optional fields, and images, that are sent even if the server rejects them
   */
  constructor(
    model: string,
    known: ServerReport = {},
    unchanged: readonly (OptionalField | 'images')[] = [],
  ) {
    this.#model = model
    this.#known = known
    this.#unchanged = new Set(unchanged)
  }

  /** Replaces the report of earlier requests: others may have learned while this one waited. */
  set known(report: ServerReport) {
    this.#known = report
  }

  /** What this request has changed; the answer that it gets proves it. */
  get learned(): ServerReport {
    return this.#learned
  }

  get report(): ServerReport {
    return { ...this.#known, ...this.#learned }
  }

  get capabilities(): ModelCapabilities {
    return capabilitiesOf(this.#model, this.report)
  }

  /**
   * @param maxTokens upper limit of the answer's length; default none
   * @param translate writes the adapted request in another protocol
   */
  build(
    request: AdaptableRequest,
    maxTokens: number = Number.POSITIVE_INFINITY,
    translate?: (adapted: AdaptableRequest) => string,
  ): AdaptedRequest {
    const { capabilities } = this
    const refused = new Set(this.report.refusedFields)
    const {
      model: _model,
      stream_options: streamOptions,
      max_tokens: given,
      max_completion_tokens: givenByNewName,
      messages,
      tools,
      ...rest
    } = request
    const seen = fitImages(messages, capabilities.maxImages)
    const spoken = adaptMessages(switchReasoning(seen, request, capabilities), capabilities)
    const fields = {
      ...rest,
      ...reasoningFields(request, capabilities, refused),
      ...(request.stream === true ? { stream_options: { ...streamOptions, include_usage: true } } : {}),
    }
    const kept = Object.fromEntries(
      Object.entries(fields).filter(
        ([name, value]) => value !== undefined && !refused.has(name as OptionalField),
      ),
    )
    // Without `stream` there is nothing to say of the stream.
    if (refused.has('stream')) delete kept.stream_options
    const echoesReasoning = this.report.needsReasoning === true && !refused.has('reasoning_content')
    const shown = spoken.map(echoesReasoning ? withReasoning : withoutReasoning)
    const offered = refused.has('strict') ? tools?.map(withoutStrict) : tools
    const payload = {
      model: this.#model,
      messages: shown,
      ...(offered === undefined ? {} : { tools: offered }),
      ...kept,
    }
    const json = JSON.stringify(payload)
    const wanted = Math.min(givenByNewName ?? given ?? outputDefaultTokens, maxTokens)
    const images = sumImages(spoken)
    this.#hasImages = images.characters > 0
    const textBytes = Buffer.byteLength(json) - images.characters
    const promptTokens = Math.ceil(textBytes / leastBytesPerToken) + images.tokens + templateTokens
    const length = outputTokens(wanted, promptTokens, capabilities, this.#promptTokens)
    const isNewName = givenByNewName !== undefined || refused.has('max_tokens')
    const lengthName = isNewName ? 'max_completion_tokens' : 'max_tokens'
    const budget = reasoningBudget(request, capabilities, length, refused)
    const counts = { [lengthName]: length, ...(budget === null ? {} : { reasoning_budget: budget }) }
    this.#optional = optionalOf({ ...kept, ...counts }, shown, offered)
    this.#outputTokens = length
    const body =
      translate?.({ ...payload, ...counts }) ?? `${json.slice(0, -1)},${JSON.stringify(counts).slice(1)}`
    return { body, streamed: kept.stream === true }
  }

  /** What an answer of this status and text rejects of the last body; null if nothing. */
  readRejection(status: number, text: string): RequestRejection | null {
    const rejection = readRejection(status, text, this.#optional)
    if (rejection?.kind === 'images')
      return this.#hasImages && !this.#unchanged.has('images') ? rejection : null
    if (rejection?.kind !== 'fields') return rejection
    const fields = rejection.fields.filter((field) => !this.#unchanged.has(field))
    return fields.length === 0 ? null : { kind: 'fields', fields }
  }

  /** Changes the request so that the rejection does not apply; false if nothing would change, or too much has. */
  adapt(rejection: RequestRejection): boolean {
    this.#changes += 1
    const change = this.#changes > changesMaxCount ? null : this.#changeFor(rejection)
    if (change === null) return false
    this.#learned = { ...this.#learned, ...change }
    if (rejection.kind === 'context') this.#promptTokens = rejection.promptTokens
    return true
  }

  #changeFor(rejection: RequestRejection): ServerReport | null {
    const { report, capabilities } = this
    switch (rejection.kind) {
      case 'fields':
        return { refusedFields: [...new Set([...(report.refusedFields ?? []), ...rejection.fields])] }
      case 'context': {
        const { contextTokens, promptTokens } = rejection
        const isKnown = capabilities.contextTokens === contextTokens && this.#promptTokens === promptTokens
        const isFull = promptTokens !== null && promptTokens >= contextTokens
        return isKnown || isFull ? null : { contextTokens }
      }
      case 'output': {
        const { maxOutputTokens } = rejection
        return maxOutputTokens < this.#outputTokens ? { maxOutputTokens } : null
      }
      case 'images':
        return rejection.maxImages < capabilities.maxImages ? { maxImages: rejection.maxImages } : null
      case 'single_calls':
        return capabilities.parallelCalls ? { singleCalls: true } : null
      case 'reasoning_required':
        // A server that rejects it too would be asked in circles.
        if (report.needsReasoning === true || report.refusedFields?.includes('reasoning_content')) return null
        return { needsReasoning: true }
      case 'tools':
        return null
    }
  }
}

/** The minimum of what is requested, what the model can answer, and what fits beside the conversation. */
function outputTokens(
  wanted: number,
  estimated: number,
  { contextTokens, maxOutputTokens }: ModelCapabilities,
  promptTokens: number | null,
): number {
  const most = Math.min(wanted, maxOutputTokens ?? wanted)
  if (contextTokens === null) return Math.max(1, most)
  const left = contextTokens - (promptTokens ?? estimated)
  // If the estimate leaves nothing, let the server report the length of the conversation.
  return Math.max(1, Math.min(most, Math.max(left, promptTokens === null ? outputMinTokens : 1)))
}

function optionalOf(
  kept: object,
  messages: readonly CompletionMessage[],
  tools: CompletionRequest['tools'],
): ReadonlySet<OptionalField> {
  const optional = new Set(optionalFields.filter((name) => name in kept))
  if (messages.some((message) => 'reasoning_content' in message)) optional.add('reasoning_content')
  if (tools?.some((tool) => tool.function.strict !== undefined)) optional.add('strict')
  return optional
}

/** Messages in a form that every server accepts. */
function adaptMessages(
  messages: readonly CompletionMessage[],
  { parallelCalls }: ModelCapabilities,
): CompletionMessage[] {
  const whole = messages.map(fillContent)
  return mergeNeighbors(parallelCalls ? whole : splitTurns(whole))
}

/** Content beside calls is null, and nothing else is empty: some servers answer 400 otherwise. */
function fillContent(message: CompletionMessage): CompletionMessage {
  if (message.role === 'user' || (message.content ?? '').trim() !== '') return message
  if (message.role === 'tool') return { ...message, content: '(no output)' }
  if (message.role !== 'assistant') return message
  return { ...message, content: message.tool_calls === undefined ? '(no answer)' : null }
}

/** Splits a turn of several calls into single-call turns, each followed by its result. */
function splitTurns(messages: readonly CompletionMessage[]): CompletionMessage[] {
  const split: CompletionMessage[] = []
  for (let at = 0; at < messages.length; at += 1) {
    const turn = messages[at]
    if (turn?.role !== 'assistant' || turn.tool_calls === undefined || turn.tool_calls.length < 2) {
      if (turn !== undefined) split.push(turn)
      continue
    }
    const results: CompletionMessage[] = []
    for (let next = messages[at + 1]; next?.role === 'tool'; next = messages[at + 1]) {
      results.push(next)
      at += 1
    }
    for (const [index, call] of turn.tool_calls.entries()) {
      split.push({ ...turn, content: index === 0 ? (turn.content ?? null) : null, tool_calls: [call] })
      for (const result of results)
        if (result.role === 'tool' && result.tool_call_id === call.id) split.push(result)
    }
  }
  return split
}

/** Merges adjacent messages of one role; many chat templates require alternating roles. */
function mergeNeighbors(messages: readonly CompletionMessage[]): CompletionMessage[] {
  const merged: CompletionMessage[] = []
  for (const message of messages) {
    const last = merged.at(-1)
    const joined = last === undefined ? null : join(last, message)
    if (joined === null) merged.push(message)
    else merged[merged.length - 1] = joined
  }
  return merged
}

/** The merged message; null if they must stay separate. */
function join(first: CompletionMessage, second: CompletionMessage): CompletionMessage | null {
  if (first.role === 'tool' || first.role !== second.role) return null
  if (first.role === 'user' && second.role === 'user') {
    return { ...first, content: joinContents(first.content, second.content) }
  }
  const content = [first.content, second.content].filter(Boolean).join('\n\n')
  if (first.role !== 'assistant') return { ...first, content }
  // Calls end a turn: the next messages are their results.
  if (first.tool_calls !== undefined || second.role !== 'assistant') return null
  return { ...first, ...second, content: content === '' ? null : content }
}

type UserContent = Extract<CompletionMessage, { role: 'user' }>['content']

function joinContents(first: UserContent, second: UserContent): UserContent {
  if (typeof first === 'string' && typeof second === 'string') {
    return [first, second].filter(Boolean).join('\n\n')
  }
  const partsOf = (content: UserContent): Exclude<UserContent, string> => {
    if (typeof content !== 'string') return content
    return content === '' ? [] : [{ type: 'text', text: content }]
  }
  return [...partsOf(first), ...partsOf(second)]
}

/** Reasoning is required with calls alone, also where the model gave none. */
function withReasoning(message: CompletionMessage): CompletionMessage {
  if (message.role !== 'assistant' || message.tool_calls === undefined) return withoutReasoning(message)
  return { ...message, reasoning_content: message.reasoning_content ?? '' }
}

function withoutReasoning(message: CompletionMessage): CompletionMessage {
  if (message.role !== 'assistant' || message.reasoning_content === undefined) return message
  const { reasoning_content: _, ...rest } = message
  return rest
}

function withoutStrict(tool: NonNullable<CompletionRequest['tools']>[number]): typeof tool {
  const { strict: _, ...rest } = tool.function
  return { ...tool, function: rest }
}
