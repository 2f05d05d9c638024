/**
 * Builds requests of Gemini's API. Its calls have no ids: results name their function, in call order. Signatures are
 * sent back on the parts they came with.
 */
import { splitImageUrl } from '../../protocol/image.ts'
import { parseArgumentsObject } from './anthropic-request.ts'
import { isRecord } from './records.ts'
import { defaultMaxTokens, type ProtocolMessage, type ProtocolRequest } from './request.ts'
import { toGoogleSchema } from './schemas.ts'

type Part = Readonly<Record<string, unknown>>
interface WireTurn {
  readonly role: 'user' | 'model'
  readonly parts: Part[]
}

/** {@link ProtocolMessage.provider_state} of Gemini answers. */
export interface GoogleState {
  readonly provider: 'google'
  /** Signature of the text; null without one. */
  readonly text: string | null
  /** Signatures of the calls, in order. */
  readonly calls: readonly (string | null)[]
}

/** Placeholder signature that the API accepts for another model's call. */
const skipSignature = 'skip_thought_signature_validator'
const budgets = { none: 0, low: 1_024, medium: 8_192, high: 24_576 } as const

/** Path and query below the server's address. */
export function geminiPath(model: string): string {
  const id = encodeURIComponent(model.replace(/^models\//, ''))
  return `/v1beta/models/${id}:streamGenerateContent?alt=sse`
}

export function toGeminiRequest(request: ProtocolRequest, maxTokens?: number): Record<string, unknown> {
  const { tools, messages } = request
  const first = messages.findIndex(({ role }) => role !== 'system')
  const leading = messages.slice(0, first < 0 ? undefined : first)
  const system = leading.map(({ content }) => content).filter((text) => text.trim() !== '')
  const offered = [
    ...(tools.length === 0 ? [] : [{ functionDeclarations: tools.map(toDeclaration) }]),
    ...(request.webSearch === true ? [{ googleSearch: {} }] : []),
  ]
  return {
    contents: toTurns(messages.slice(leading.length), needsSignatures(request.model)),
    ...(system.length === 0 ? {} : { systemInstruction: { parts: system.map((text) => ({ text })) } }),
    ...(offered.length === 0 ? {} : { tools: offered }),
    ...(tools.length === 0 || request.toolChoice === undefined
      ? {}
      : { toolConfig: { functionCallingConfig: toCallingConfig(request.toolChoice) } }),
    generationConfig: toGenerationConfig(request, maxTokens),
  }
}

function toGenerationConfig(request: ProtocolRequest, maxTokens?: number): Part {
  const { temperature, topP, stop, responseFormat, reasoningEffort } = request
  return {
    maxOutputTokens: request.maxTokens ?? maxTokens ?? defaultMaxTokens,
    ...(temperature === undefined ? {} : { temperature }),
    ...(topP === undefined ? {} : { topP }),
    ...(stop === undefined ? {} : { stopSequences: stop }),
    ...(responseFormat === undefined
      ? {}
      : { responseMimeType: 'application/json', responseSchema: toGoogleSchema(responseFormat.schema) }),
    ...(reasoningEffort === 'default' ? {} : { thinkingConfig: toThinking(request.model, reasoningEffort) }),
  }
}

/** Models up to 2.5 take a token budget for thinking, later ones a level. */
function toThinking(model: string, effort: keyof typeof budgets): Part {
  const includeThoughts = effort !== 'none'
  if (/gemini-[12]\b/.test(model)) return { thinkingBudget: budgets[effort], includeThoughts }
  return { thinkingLevel: effort === 'none' ? 'minimal' : effort, includeThoughts }
}

function needsSignatures(model: string): boolean {
  return /gemini-(?![12]\b)\d/.test(model)
}

function toTurns(messages: readonly ProtocolMessage[], signed: boolean): WireTurn[] {
  const turns: WireTurn[] = []
  const namesById = new Map<string, string>()
  for (const message of messages) {
    const role = message.role === 'assistant' ? 'model' : 'user'
    for (const call of message.tool_calls ?? []) namesById.set(call.id, call.function.name)
    const parts = toParts(message, namesById, signed)
    const last = turns.at(-1)
    if (last?.role === role) last.parts.push(...parts)
    else if (parts.length > 0) turns.push({ role, parts })
  }
  if (turns[0]?.role !== 'user') turns.unshift({ role: 'user', parts: [{ text: '(begin)' }] })
  return turns
}

function toParts(message: ProtocolMessage, namesById: ReadonlyMap<string, string>, signed: boolean): Part[] {
  const { content } = message
  const text = content.trim() === '' ? [] : [{ text: content }]
  switch (message.role) {
    case 'system':
      return text.length === 0 ? [] : [{ text: `[system] ${content}` }]
    case 'tool': {
      const name = namesById.get(message.tool_call_id ?? '') ?? 'unknown'
      return [{ functionResponse: { name, response: { result: content } } }]
    }
    case 'assistant':
      return toModelParts(message, signed)
    default:
      return [...text, ...(message.images ?? []).flatMap(toImagePart)]
  }
}

/** The API does not list GIF among its types (docs.cloud.google.com, image understanding, 2026-11). */
function toImagePart(url: string): Part[] {
  const image = splitImageUrl(url)
  if (image === null) return []
  if (image.type === 'image/gif')
    return [{ text: '[Image left out (image/gif): this model cannot see GIF. Convert it to PNG to see it.]' }]
  return [{ inlineData: { mimeType: image.type, data: image.base64 } }]
}

function toModelParts(message: ProtocolMessage, signed: boolean): Part[] {
  const state = stateOf(message)
  const parts: Part[] = []
  if (message.content.trim() !== '')
    parts.push({ text: message.content, ...(state?.text ? { thoughtSignature: state.text } : {}) })
  for (const [at, call] of (message.tool_calls ?? []).entries()) {
    // The API rejects an answer whose first call has no signature.
    const signature = state?.calls[at] ?? (signed && at === 0 ? skipSignature : null)
    const { name, arguments: argumentsText } = call.function
    parts.push({
      functionCall: { name, args: parseArgumentsObject(argumentsText) },
      ...(signature === null ? {} : { thoughtSignature: signature }),
    })
  }
  return parts
}

function stateOf({ provider_state: state }: ProtocolMessage): GoogleState | null {
  if (!isRecord(state) || state.provider !== 'google' || !Array.isArray(state.calls)) return null
  return {
    provider: 'google',
    text: typeof state.text === 'string' ? state.text : null,
    calls: state.calls.map((signature: unknown) => (typeof signature === 'string' ? signature : null)),
  }
}

function toDeclaration(tool: ProtocolRequest['tools'][number]): Part {
  const parameters = toGoogleSchema({ type: 'object', ...tool.parameters })
  return {
    name: tool.name,
    description: tool.description,
    ...(parameters === undefined ? {} : { parameters }),
  }
}

function toCallingConfig(choice: NonNullable<ProtocolRequest['toolChoice']>): Part {
  if (typeof choice === 'object') return { mode: 'ANY', allowedFunctionNames: [choice.name] }
  return { mode: choice === 'required' ? 'ANY' : 'NONE' }
}
