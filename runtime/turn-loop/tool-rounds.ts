/** The rounds of tool calls of one loop: trace summaries, and the cycle guard before and after each round. */

import { hash } from 'node:crypto'
import type { LLMToolCall } from '../contract/contract.ts'
import { type GuardedCall, LoopGuard } from './loop-guard.ts'
import type { TurnLoopRepeatedToolCallStopDetail, TurnLoopToolCallSummary } from './trace.ts'
import type { TurnLoopToolResult } from './types.ts'

/** A batch of calls that has not run yet. */
interface ToolRound {
  readonly summaries: readonly TurnLoopToolCallSummary[]
  /** Why it must not run. */
  readonly repeated: TurnLoopRepeatedToolCallStopDetail | null
}

export class ToolRounds {
  readonly #limit: number | null
  readonly #guard: LoopGuard | null
  #lastSignature = ''
  #sameInARow = 0

  /** `limit` of the guard; null: none. */
  constructor(limit: number | null) {
    this.#limit = limit
    this.#guard = limit === null ? null : new LoopGuard(limit)
  }

  open(
    calls: readonly LLMToolCall[],
    iteration: number,
    source: TurnLoopToolCallSummary['source'],
  ): ToolRound {
    const normalized = calls.map((call) => normalizeArguments(call.function.arguments))
    const batchSignature = calls
      .map((call, index) => {
        const origin = call.synthetic === true ? 'synthetic' : 'model'
        return `${index}:${call.function.name}:${shorten(normalized[index] ?? '')}:${origin}`
      })
      .join('|')
    this.#sameInARow = batchSignature === this.#lastSignature ? this.#sameInARow + 1 : 1
    this.#lastSignature = batchSignature
    const consecutiveSameBatchCount = this.#sameInARow
    const summarize = (call: LLMToolCall, toolIndex: number, stopped: boolean): TurnLoopToolCallSummary => ({
      iteration,
      toolCallId: call.id,
      toolName: call.function.name,
      toolArguments: call.function.arguments,
      normalizedArguments: normalized[toolIndex] ?? '',
      toolIndex,
      batchSignature,
      consecutiveSameBatchCount,
      source,
      synthetic: call.synthetic === true,
      stoppedByRepeatedGuard: stopped,
    })
    const period =
      this.#guard?.findCircle(calls.map((call, index) => guarded(call, normalized[index]))) ?? null
    const toolNames = calls.map((call) => call.function.name)
    return {
      summaries: calls.map((call, index) => summarize(call, index, period !== null)),
      repeated:
        period === null || this.#limit === null
          ? null
          : {
              batchSignature,
              consecutiveSameBatchCount,
              maxConsecutiveSameBatches: this.#limit,
              toolNames,
              tool: toolNames[0] ?? '',
              period,
            },
    }
  }

  /** After the batch ran; true when the model should be warned of a standstill. */
  close(round: ToolRound, results: readonly TurnLoopToolResult[] | undefined): boolean {
    if (this.#guard === null) return false
    const contents = new Map(results?.map(({ toolCallId, content }) => [toolCallId, content]))
    return this.#guard.record(
      round.summaries.map(({ toolCallId, toolName, normalizedArguments }) => {
        const result = contents.get(toolCallId)
        return { tool: toolName, arguments: normalizedArguments, ...(result === undefined ? {} : { result }) }
      }),
    )
  }

  /** After a text that was no answer. */
  noteText(text: string): void {
    this.#forgetBatch()
    this.#guard?.recordText(text)
  }

  /** After an answer. */
  reset(): void {
    this.#forgetBatch()
    this.#guard?.reset()
  }

  #forgetBatch(): void {
    this.#lastSignature = ''
    this.#sameInARow = 0
  }
}

function guarded(call: LLMToolCall, normalized = ''): GuardedCall {
  return { tool: call.function.name, arguments: normalized }
}

/** Normalized JSON arguments: sorted keys, no blanks. Invalid or too deeply nested ones are unchanged. */
export function normalizeArguments(text = ''): string {
  const trimmed = text.trim()
  if (trimmed === '') return '{}'
  try {
    const sorted = stringifySorted(JSON.parse(trimmed))
    // Share one string when both are equal.
    return sorted === text ? text : sorted
  } catch {
    return trimmed
  }
}

/** `text`, or a digest of a long one. */
function shorten(text: string): string {
  return text.length <= 200 ? text : `sha256-${hash('sha256', text, 'base64url')}`
}

function stringifySorted(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(stringifySorted).join(',')}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))
  return `{${entries.map(([key, entry]) => `${JSON.stringify(key)}:${stringifySorted(entry)}`).join(',')}}`
}
