/** Converts a turn for the application: final names and ids, and one message for the transcript. */
import { randomBytes } from 'node:crypto'
import type { LLMChatMessage, LLMResponse, LLMToolCall, LLMUsage } from '../contract/contract.ts'
import type { ToolSet } from '../environment/tool-set.ts'
import type { Turn } from '../llm/model.ts'
import { isCutOff } from '../llm/tool-calls.ts'

const stopKinds: Readonly<Record<string, LLMResponse['stopKind']>> = {
  stop: 'natural',
  tool_calls: 'tool',
  length: 'length',
  content_filter: 'content_filter',
}

export function toResponse(turn: Turn, tools: ToolSet): LLMResponse {
  const calls = toCalls(turn, tools)
  const assistantMessage: LLMChatMessage = {
    role: 'assistant',
    content: turn.text,
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
    ...(turn.reasoning === '' ? {} : { reasoning_content: turn.reasoning }),
    ...(turn.providerState === undefined ? {} : { provider_state: turn.providerState }),
  }
  const usage = toUsage(turn)
  const known = Object.hasOwn(stopKinds, turn.finishReason) ? stopKinds[turn.finishReason] : undefined
  return {
    type: calls.length === 0 ? 'text' : 'tool_calls',
    content: turn.text,
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
    assistantMessage,
    ...(usage === null ? {} : { usage }),
    // Some servers say `stop` with calls, some `tool_calls` without.
    stopKind:
      known === 'natural' || known === 'tool'
        ? calls.length === 0
          ? 'natural'
          : 'tool'
        : (known ?? 'unknown'),
  }
}

/** The calls, without those that the token limit truncated. */
function toCalls(turn: Turn, tools: ToolSet): LLMToolCall[] {
  const whole = turn.toolCalls.filter(
    ({ argumentsText }) =>
      turn.finishReason !== 'length' || (argumentsText.trim() !== '' && !isCutOff(argumentsText)),
  )
  const ids = new Set<string>()
  return whole.map(({ id, name, argumentsText }) => {
    const own = id === '' || ids.has(id) ? drawId() : id
    ids.add(own)
    return {
      id: own,
      type: 'function',
      function: { name: tools.toReal(name), arguments: argumentsText.trim() === '' ? '{}' : argumentsText },
    }
  })
}

/** Nine letters and digits, as the strictest servers require. */
function drawId(): string {
  return randomBytes(5).toString('hex').slice(0, 9)
}

function toUsage({ usage }: Turn): LLMUsage | null {
  const { inputTokens, outputTokens, reasoningTokens } = usage
  return inputTokens + outputTokens === 0 ? null : { inputTokens, outputTokens, reasoningTokens }
}
