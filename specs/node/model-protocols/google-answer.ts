/** Decodes answers of Gemini's API, streamed or whole, into the common parts. */
import { errorWithin } from '../provider-quirks/provider-error.ts'
import { GeminiCalls } from './google-calls.ts'
import type { GoogleState } from './google-request.ts'
import { errorFromStream, modelError } from './model-error.ts'
import { type AnswerDecoder, readCount, readFinish, type StreamPart, textOf } from './parts.ts'
import { isRecord } from './records.ts'

/** Decodes one answer. Its calls have no ids. Output of server tools is not a call and is omitted. */
export class GeminiDecoder implements AnswerDecoder {
  #textSignature: string | null = null
  readonly #calls = new GeminiCalls()

  readValue(value: unknown, parts: StreamPart[]): void {
    if (!isRecord(value)) return
    const error = errorWithin(value)
    if (error !== undefined) return void parts.push({ type: 'error', error: errorFromStream(error) })
    const candidate: unknown = Array.isArray(value.candidates) ? value.candidates[0] : undefined
    const content = isRecord(candidate) && isRecord(candidate.content) ? candidate.content.parts : undefined
    if (Array.isArray(content)) for (const part of content) this.#readPart(part, parts)
    if (parts.at(-1)?.type === 'error') return
    if (isRecord(value.usageMetadata)) parts.push(readUsage(value.usageMetadata))
    if (isRecord(candidate)) this.#finish(textOf(candidate.finishReason), candidate.finishMessage, parts)
    const feedback = isRecord(value.promptFeedback) ? textOf(value.promptFeedback.blockReason) : ''
    if (candidate === undefined && feedback !== '') parts.push(readFinish('safety'))
  }

  #readPart(part: unknown, parts: StreamPart[]): void {
    if (!isRecord(part)) return
    const signature = textOf(part.thoughtSignature)
    if (isRecord(part.functionCall))
      return void this.#addCall(this.#calls.read(part.functionCall, signature), parts)
    if (signature !== '') this.#textSignature = signature
    const text = textOf(part.text)
    if (text !== '') parts.push({ type: part.thought === true ? 'reasoning' : 'text', text })
  }

  #addCall(call: ReturnType<GeminiCalls['read']>, parts: StreamPart[]): void {
    if (typeof call === 'string') parts.push({ type: 'error', error: modelError('broken', call) })
    else if (call !== null) parts.push({ type: 'tool-call-delta', fragment: call })
  }

  #finish(reason: string, message: unknown, parts: StreamPart[]): void {
    if (reason === '' || reason === 'FINISH_REASON_UNSPECIFIED') return
    // Calls truncated by the token limit are omitted.
    if (reason !== 'MAX_TOKENS') this.#addCall(this.#calls.end(), parts)
    if (parts.at(-1)?.type === 'error') return
    if (reason === 'MALFORMED_FUNCTION_CALL' || reason === 'UNEXPECTED_TOOL_CALL') {
      const words = `the model wrote a call that its server could not read (${reason}) ${textOf(message)}`
      parts.push({ type: 'error', error: modelError('broken', words) })
      return
    }
    const { signatures } = this.#calls
    if (this.#textSignature !== null || signatures.some((signature) => signature !== null)) {
      const state: GoogleState = {
        provider: 'google',
        text: this.#textSignature,
        calls: [...signatures],
      }
      parts.push({ type: 'state', state })
    }
    parts.push(readFinish(reason))
  }
}

function readUsage(usage: Record<string, unknown>): StreamPart {
  const reasoningTokens = readCount(usage.thoughtsTokenCount)
  const cachedTokens = readCount(usage.cachedContentTokenCount)
  return {
    type: 'usage',
    usage: {
      inputTokens: readCount(usage.promptTokenCount) + readCount(usage.toolUsePromptTokenCount),
      cachedTokens,
      outputTokens: readCount(usage.candidatesTokenCount) + reasoningTokens,
      reasoningTokens,
    },
  }
}
