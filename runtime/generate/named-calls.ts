/** Removes nameless calls and their results from a transcript: no provider accepts them. */
import type { LLMChatMessage } from '../contract/contract.ts'

/** Returns the same messages when every call has a name. */
export function withNamedCalls(messages: readonly LLMChatMessage[]): readonly LLMChatMessage[] {
  if (messages.every(({ tool_calls: calls = [] }) => calls.every(hasName))) return messages
  const kept: LLMChatMessage[] = []
  let dropped: ReadonlySet<string> = new Set()
  for (const message of messages) {
    const { role, tool_calls: calls = [], tool_call_id: id = '' } = message
    if (role === 'tool' && dropped.has(id)) continue
    if (role !== 'assistant') {
      kept.push(message)
      continue
    }
    const named = calls.filter(hasName)
    const namedIds = new Set(named.map((call) => call.id))
    dropped = new Set(calls.map((call) => call.id).filter((one) => !namedIds.has(one)))
    kept.push(named.length === calls.length ? message : withCalls(message, named))
  }
  return kept
}

function withCalls(
  message: LLMChatMessage,
  calls: NonNullable<LLMChatMessage['tool_calls']>,
): LLMChatMessage {
  const { tool_calls: _calls, ...rest } = message
  return calls.length === 0 ? rest : { ...rest, tool_calls: calls }
}

function hasName({ function: { name } }: NonNullable<LLMChatMessage['tool_calls']>[number]): boolean {
  return typeof name === 'string' && name.trim() !== ''
}
