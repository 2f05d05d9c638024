/**
 * How long a conversation is in the model's own tokens. What the provider counted is taken as it is; only what came since is
 * estimated, by the measure that the count gave. No tokenizer is in the guest: the decisions say why.
 */
import { Buffer } from 'node:buffer'
import type { ChatMessage } from '#runtime/llm/messages.ts'

/** UTF-8 bytes of a token before anything was counted: rather too many tokens than too few. */
const bytesPerToken = 3.4
/** Of the marks around a message or a call. */
const tokensPerMark = 5
/** A count that is further off than this factor is none: some servers count only what was not cached, or nothing. */
const trustedFactor = 3

/** Tokens of a text before anything was counted. */
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

export class TokenMeter {
  /** Estimated, of the tools and whatever else stands beside the messages. */
  readonly #beside: number
  /** Counted tokens per estimated one. */
  #measure = 1
  /** The request that was counted last: its messages and its tokens. */
  #counted: { messages: number; last: ChatMessage | undefined; tokens: number } | null = null

  /** `beside`: what goes with every request, such as its tools as JSON. */
  constructor(beside: string) {
    this.#beside = estimateTokens(beside)
  }

  /** Tokens of what goes with every request. */
  get beside(): number {
    return this.#scale(this.#beside)
  }

  /** Tokens of a request with these messages, in which those that were counted stand first and unchanged. */
  count(messages: readonly ChatMessage[]): number {
    const counted = this.#counted
    if (counted === null || messages.length < counted.messages) return this.estimate(messages) + this.beside
    const last = messages[counted.messages - 1]
    // Words may have been added to the message that was last.
    const grown =
      last === undefined || counted.last === undefined || last === counted.last
        ? 0
        : estimateMessage(last) - estimateMessage(counted.last)
    return counted.tokens + this.#scale(grown) + this.estimate(messages.slice(counted.messages))
  }

  /** Tokens of these messages alone, by the measure of the last count. */
  estimate(messages: readonly ChatMessage[]): number {
    let tokens = 0
    for (const message of messages) tokens += estimateMessage(message)
    return this.#scale(tokens)
  }

  /** Characters of plain text that `tokens` are likely to hold. */
  charsFor(tokens: number): number {
    return Math.max(0, Math.floor((tokens * bytesPerToken) / this.#measure))
  }

  /** Takes in what the provider counted for a request with these messages; 0 where it did not say. */
  note(messages: readonly ChatMessage[], tokens: number): void {
    let estimated = this.#beside
    for (const message of messages) estimated += estimateMessage(message)
    const measure = tokens / Math.max(1, estimated)
    if (!(measure >= 1 / trustedFactor && measure <= trustedFactor)) return
    this.#measure = measure
    this.#counted = { messages: messages.length, last: messages.at(-1), tokens }
  }

  /** The messages were replaced by others: what was counted is none of theirs. The measure stays. */
  forget(): void {
    this.#counted = null
  }

  #scale(tokens: number): number {
    return Math.ceil(tokens * this.#measure)
  }
}
