/**
 * Translates a guest's chat requests to another protocol of models, and the answers back to chat completions. Owns what
 * the provider wants back with its calls, which the guest never sees.
 */
import { MessageDecoder } from '#specs/node/model-protocols/anthropic-answer.ts'
import {
  refusesThinking,
  thinkingForm,
  toMessagesRequest,
} from '#specs/node/model-protocols/anthropic-request.ts'
import { GeminiDecoder } from '#specs/node/model-protocols/google-answer.ts'
import { toGeminiRequest } from '#specs/node/model-protocols/google-request.ts'
import type { AnswerDecoder } from '#specs/node/model-protocols/parts.ts'
import type { ProtocolMessage, ProtocolRequest } from '#specs/node/model-protocols/request.ts'
import { type ServerKindName, serverKinds } from '#specs/node/model-protocols/server-kinds.ts'
import type { AdaptableRequest } from '#specs/node/provider-quirks/adaptation.ts'
import { readErrorBody } from '#specs/node/provider-quirks/provider-error.ts'
import type { RequestRejection } from '#specs/node/provider-quirks/rejection.ts'
import type { CompletionMessage, CompletionPart } from '#specs/protocol/completion-request.ts'

/** Bounds of what is kept of answers; the oldest go first. */
const keptMaxAnswers = 256
const keptMaxChars = 16 * 1024 * 1024

/** Provider data by the id of the first call of its answer. */
class KeptStates {
  readonly #states = new Map<string, { readonly state: unknown; readonly chars: number }>()
  #chars = 0

  get(callId: string | undefined): unknown {
    return callId === undefined ? undefined : this.#states.get(callId)?.state
  }

  add(callId: string, state: unknown): void {
    this.#remove(callId)
    const { length: chars } = JSON.stringify(state)
    this.#states.set(callId, { state, chars })
    this.#chars += chars
    while (this.#states.size > keptMaxAnswers || this.#chars > keptMaxChars) {
      const [oldest] = this.#states.keys()
      if (oldest === undefined) return
      this.#remove(oldest)
    }
  }

  #remove(callId: string): void {
    this.#chars -= this.#states.get(callId)?.chars ?? 0
    this.#states.delete(callId)
  }
}

export class Translation {
  readonly #protocol: 'anthropic' | 'google'
  readonly #model: string
  readonly #kept = new KeptStates()
  /** Whether the model wants another form of thinking than its family. */
  #isOtherForm = false

  private constructor(protocol: 'anthropic' | 'google', model: string) {
    this.#protocol = protocol
    this.#model = model
  }

  /** Null for kinds that speak chat completions. */
  static of(kind: ServerKindName, model: string): Translation | null {
    const { protocol } = serverKinds[kind]
    return protocol === 'chat' ? null : new Translation(protocol, model)
  }

  /** The body of the request; always asks for a stream. */
  write(adapted: AdaptableRequest): string {
    const request = this.#read(adapted)
    if (this.#protocol === 'google') return JSON.stringify(toGeminiRequest(request))
    const thinking = thinkingForm(this.#model, this.#isOtherForm)
    return JSON.stringify(toMessagesRequest(request, { thinking, caches: true }))
  }

  decoder(): AnswerDecoder {
    return this.#protocol === 'google' ? new GeminiDecoder() : new MessageDecoder()
  }

  /** Keeps what the provider wants back with the call. */
  keep(callId: string, state: unknown): void {
    this.#kept.add(callId, state)
  }

  /** What a refusal in words of this protocol means for the chat request; `again`: the same request has another form now. */
  readRejection(status: number, body: string): RequestRejection | 'again' | null {
    if (status !== 400) return null
    const { message } = readErrorBody(body)
    if (this.#protocol === 'anthropic' && refusesThinking(message)) {
      if (this.#isOtherForm) return { kind: 'fields', fields: ['reasoning_effort'] }
      this.#isOtherForm = true
      return 'again'
    }
    if (/thinking.?(?:level|budget|config)/i.test(message))
      return { kind: 'fields', fields: ['reasoning_effort'] }
    if (/output_(?:config|format)|response.?(?:mime|schema)/i.test(message))
      return { kind: 'fields', fields: ['response_format'] }
    if (/`?temperature`?.{0,40}(?:deprecated|not supported)/i.test(message))
      return { kind: 'fields', fields: ['temperature'] }
    return null
  }

  #read(adapted: AdaptableRequest): ProtocolRequest {
    const { tools = [], tool_choice: choice, response_format: format, stop } = adapted
    const { reasoning_effort: effort, temperature, top_p: topP } = adapted
    const maxTokens = adapted.max_tokens ?? adapted.max_completion_tokens
    return {
      model: this.#model,
      messages: adapted.messages.flatMap((message) => this.#readMessage(message)),
      tools: tools.map(({ function: { name, description = '', parameters = {} } }) => ({
        name,
        description,
        parameters,
      })),
      ...(choice === undefined || choice === 'auto'
        ? {}
        : { toolChoice: typeof choice === 'string' ? choice : { name: choice.function.name } }),
      ...(format?.type === 'json_schema' ? { responseFormat: format.json_schema } : {}),
      reasoningEffort: effort === undefined ? 'default' : effort === 'minimal' ? 'low' : effort,
      ...(maxTokens === undefined ? {} : { maxTokens }),
      ...(temperature === undefined ? {} : { temperature }),
      ...(topP === undefined ? {} : { topP }),
      ...(stop === undefined ? {} : { stop: typeof stop === 'string' ? [stop] : stop }),
    }
  }

  #readMessage(message: CompletionMessage): ProtocolMessage | readonly ProtocolMessage[] {
    if (message.role === 'user') return readUser(message.content)
    if (message.role !== 'assistant') return message
    const { content, tool_calls: calls } = message
    const state = this.#kept.get(calls?.[0]?.id)
    return {
      role: 'assistant',
      content: content ?? '',
      ...(calls === undefined ? {} : { tool_calls: calls }),
      ...(state === undefined ? {} : { provider_state: state }),
    }
  }
}

/** One message for each part keeps texts and images in order; the protocol joins them to one turn. */
function readUser(content: string | readonly CompletionPart[]): readonly ProtocolMessage[] {
  if (typeof content === 'string') return [{ role: 'user', content }]
  return content.map((part) =>
    part.type === 'text'
      ? { role: 'user', content: part.text }
      : { role: 'user', content: '', images: [part.image_url.url] },
  )
}
