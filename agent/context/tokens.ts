/**
 * Estimates a conversation's length in the model's own tokens. The provider's count is used as is; only newer text is
 * estimated, calibrated by that count. The guest has no tokenizer; `specs/decisions/` says why.
 */
import { Buffer } from 'node:buffer'
import type { ChatMessage } from '#runtime/llm/messages.ts'
import { estimateImageTokens, readImageUrl } from '#specs/protocol/image.ts'

/** UTF-8 bytes per token before the first count; overestimates tokens. */
const bytesPerToken = 3.4
/** Tokens for the markup around a message or a call. */
const tokensPerMark = 5
/** A count that is off by more than this factor is ignored: some servers count only uncached tokens, or none. */
const trustedFactor = 3

/** Estimated tokens of a text before the first count. */
export function estimateTokens(text: string): number {
  return Math.ceil(Buffer.byteLength(text) / bytesPerToken)
}

const estimates = new WeakMap<ChatMessage, number>()

function estimateMessage(message: ChatMessage): number {
  const known = estimates.get(message)
  if (known !== undefined) return known
  let tokens = tokensPerMark + estimateTokens(message.content)
  if (message.role === 'assistant') {
    for (const { name, argumentsText } of message.toolCalls)
      tokens += tokensPerMark + estimateTokens(name) + estimateTokens(argumentsText)
  }
  estimates.set(message, tokens)
  return tokens
}

const imageEstimates = new WeakMap<ChatMessage, number>()

/** Estimated tokens of the images in a message. */
function estimateImages(message: ChatMessage): number {
  if (message.role !== 'user' || message.images === undefined) return 0
  const known = imageEstimates.get(message)
  if (known !== undefined) return known
  let tokens = 0
  for (const url of message.images) {
    const image = readImageUrl(url)
    if (image.ok) tokens += estimateImageTokens(image.value)
  }
  imageEstimates.set(message, tokens)
  return tokens
}

export class TokenMeter {
  /** Estimated tokens of the tools and other fixed parts of a request. */
  readonly #beside: number
  /** Counted tokens per estimated token. */
  #measure = 1
  /** The request that was counted last: its messages and its tokens. */
  #counted: { messages: number; last: ChatMessage | undefined; tokens: number } | null = null

  /** @param beside fixed parts of every request, such as its tools as JSON */
  constructor(beside: string) {
    this.#beside = estimateTokens(beside)
  }

  /** Tokens of the fixed parts of every request. */
  get beside(): number {
    return this.#scale(this.#beside)
  }

  /** Tokens of a request with these messages; messages that were already counted come first and are unchanged. */
  count(messages: readonly ChatMessage[]): number {
    const counted = this.#counted
    if (counted === null || messages.length < counted.messages) return this.estimate(messages) + this.beside
    const last = messages[counted.messages - 1]
    // Text may have been appended to the message that was last.
    const grown =
      last === undefined || counted.last === undefined || last === counted.last
        ? 0
        : estimateMessage(last) - estimateMessage(counted.last)
    return counted.tokens + this.#scale(grown) + this.estimate(messages.slice(counted.messages))
  }

  /** Tokens of these messages alone, by the latest calibration. */
  estimate(messages: readonly ChatMessage[]): number {
    let tokens = 0
    let images = 0
    for (const message of messages) {
      tokens += estimateMessage(message)
      images += estimateImages(message)
    }
    return this.#scale(tokens) + images
  }

  /** Estimated characters of plain text in `tokens`. */
  charsFor(tokens: number): number {
    return Math.max(0, Math.floor((tokens * bytesPerToken) / this.#measure))
  }

  /** Records the provider's count for a request with these messages; 0 when it gave none. */
  note(messages: readonly ChatMessage[], tokens: number): void {
    let estimated = this.#beside
    let images = 0
    for (const message of messages) {
      estimated += estimateMessage(message)
      images += estimateImages(message)
    }
    const measure = tokens / Math.max(1, estimated)
    const most = trustedFactor * (1 + images / Math.max(1, estimated))
    if (!(measure >= 1 / trustedFactor && measure <= most)) return
    // What a model counts for an image says nothing of its text.
    if (images === 0) this.#measure = measure
    this.#counted = { messages: messages.length, last: messages.at(-1), tokens }
  }

  /** Discards the count because the messages were replaced. The calibration stays. */
  forget(): void {
    this.#counted = null
  }

  #scale(tokens: number): number {
    return Math.ceil(tokens * this.#measure)
  }
}
