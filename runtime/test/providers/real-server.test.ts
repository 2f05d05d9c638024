// Providers against a real model server, without a gateway; it speaks chat completions and Anthropic's protocol.
import { describe, expect, it } from 'vitest'
import { type LlamaServer, llamaKey, llamaModel, useLlamaServer } from '../../../test/support/llama-server.ts'
import type { LLMChatMessage, ProviderRequest } from '../../contract/contract.ts'
import { createLLMEnvironment } from '../../environment/environment.ts'
import { generate, type LLMRequest, stream } from '../../generate/generate.ts'
import { collectTurn } from '../../llm/model.ts'

const start = useLlamaServer()

function open(server: LlamaServer, apiKey = llamaKey) {
  const shared = { apiKey, maxAttempts: 1, maxTokens: 2_000 }
  return createLLMEnvironment({
    providers: {
      'openai-compatible': { ...shared, baseUrl: server.url },
      ollama: { ...shared, baseUrl: server.url },
      anthropic: { ...shared, baseUrl: server.url.replace(/\/v1$/, '') },
    },
  })
}

const parameters = { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] }
const tools = [
  { name: 'list_files', description: 'Lists', parameters },
  { name: 'read_file', description: 'Reads', parameters },
]

for (const provider of ['openai-compatible', 'ollama', 'anthropic']) {
  describe(`a real server, asked as ${provider}`, () => {
    it('gives the same whole and as it comes, with thoughts and tokens [S2.06] [S2.07] [S2.08]', async (context) => {
      await using server = await start(context)
      await using environment = open(server)
      const messages = [{ role: 'user', content: 'hello' }] as const
      const request: LLMRequest = { environment, provider, model: llamaModel, messages }
      const whole = await generate(request)
      expect(whole).toMatchObject({
        type: 'text',
        content: 'Hello from a real server: naïve café 日本語 🙂 done',
        stopKind: 'natural',
        assistantMessage: { reasoning_content: expect.stringContaining('greets') },
        usage: { inputTokens: expect.any(Number), outputTokens: expect.any(Number) },
      })
      expect(whole.usage?.outputTokens).toBeGreaterThan(5)
      const told = { content: '', reasoningContent: '' }
      let count = 0
      const reading = stream(request)
      let next = await reading.next()
      for (; next.done !== true; next = await reading.next(), count++) {
        told.content += next.value.content ?? ''
        told.reasoningContent += next.value.reasoningContent ?? ''
      }
      expect(next.value).toEqual(whole)
      expect(told.content).toBe(whole.content)
      expect(told.reasoningContent).toBe(whole.assistantMessage.reasoning_content)
      expect(count).toBeGreaterThan(5)
    })

    it('calls tools at once and takes its calls back with their results [S2.06 S2.08 S0.11]', async (context) => {
      await using server = await start(context)
      await using environment = open(server)
      const ask = (messages: readonly LLMChatMessage[]) => {
        const { signal } = new AbortController()
        const request: ProviderRequest = {
          model: llamaModel,
          messages,
          tools,
          reasoningEffort: 'default',
          signal,
        }
        return collectTurn(environment.providerStore.get(provider).provider.stream(request))
      }
      const question: LLMChatMessage = { role: 'user', content: 'both at once' }
      const turn = await ask([question])
      if (!turn.ok) throw new Error(turn.error.message)
      const { toolCalls, finishReason, text: content, providerState } = turn.value
      expect(finishReason).toBe('tool_calls')
      expect(toolCalls.map(({ name, argumentsText }) => [name, JSON.parse(argumentsText)])).toEqual([
        ['read_file', { path: 'README.md' }],
        ['list_files', { path: 'src' }],
      ])
      const calls = toolCalls.map(({ id, name, argumentsText }) => ({
        id,
        type: 'function' as const,
        function: { name, arguments: argumentsText },
      }))
      const answer: LLMChatMessage = {
        role: 'assistant',
        content,
        tool_calls: calls,
        provider_state: providerState,
      }
      const results = calls.map(
        ({ id }): LLMChatMessage => ({ role: 'tool', tool_call_id: id, content: 'x' }),
      )
      expect(await ask([question, answer, ...results])).toMatchObject({
        ok: true,
        value: { text: 'The tool answered, so this step is finished.', toolCalls: [] },
      })
    })

    it('refuses a wrong key and a conversation that is too long, each by its code [S2.06]', async (context) => {
      await using server = await start(context)
      await using environment = open(server)
      const request = { provider, model: llamaModel }
      const messages = [{ role: 'user', content: 'x'.repeat(120_000) }] as const
      await expect(generate({ ...request, environment, messages })).rejects.toMatchObject({
        kind: 'context_exceeded',
      })
      await using stranger = open(server, 'wrong-key-0123456789')
      const wrong = generate({ ...request, environment: stranger, messages })
      await expect(wrong).rejects.toMatchObject({ kind: 'unauthorized', status: 401 })
    })
  })
}
