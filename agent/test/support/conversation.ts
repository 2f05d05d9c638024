/** What every provider asks of a conversation, in one place for all tests. */
import { expect } from 'vitest'
import { toWireMessage } from '#runtime/llm/client.ts'
import type { ChatMessage } from '#runtime/llm/messages.ts'
import { Adaptation } from '#specs/node/provider-quirks/adaptation.ts'
import { CompletionRequest } from '#specs/protocol/completion-request.ts'

/**
 * Fails unless the system speaks first and once, a user follows, roles take turns, every call has exactly one result right
 * behind its message in the order asked, and no message is empty as it is sent.
 */
export function expectValidConversation(messages: readonly ChatMessage[]): void {
  expect(messages.slice(0, 2).map(({ role }) => role)).toEqual(['system', 'user'])
  const open: string[] = []
  messages.forEach((message, index) => {
    const before = messages[index - 1]?.role
    if (message.role === 'tool') {
      expect(message.callId).toBe(open.shift())
      return
    }
    expect(open).toEqual([])
    expect(message.role).not.toBe(before)
    if (index > 0) expect(message.role).not.toBe('system')
    if (message.role !== 'assistant') return
    expect(message.content.trim() !== '' || message.toolCalls.length > 0).toBe(true)
    open.push(...message.toolCalls.map(({ id }) => id))
    expect(new Set(open).size).toBe(open.length)
  })
  expect(open).toEqual([])
  const request = { messages: messages.map(toWireMessage) }
  expect(CompletionRequest.safeParse(request).success).toBe(true)
  const sent = JSON.parse(new Adaptation('m').build(request).body) as CompletionRequest
  for (const message of sent.messages) expect(message.content).not.toBe('')
}
