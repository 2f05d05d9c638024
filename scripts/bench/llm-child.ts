/**
 * A process with only the model client, or only the floor, so that its CPU time is attributable. Takes jobs over IPC
 * and returns the CPU milliseconds of one turn.
 */

import type { ChatRequest } from '#runtime/llm/client.ts'
import type { ChatMessage } from '#runtime/llm/messages.ts'
import { createModel } from '#runtime/llm/model.ts'

export interface LlmJob {
  readonly baseUrl: string
  readonly turns: number
  /** Turns of the conversation that each request carries. */
  readonly history: number
}

export interface LlmResult {
  readonly cpuMs: number
  /** Of the last turn; equal for client and floor. */
  readonly text: string
  readonly argumentsText: string
}

type Said = Omit<LlmResult, 'cpuMs'>

const ask = process.argv[2] === 'floor' ? askBarely : askClient

process.on('message', (job: LlmJob) => {
  measure(job).then(
    (result) => process.send?.(result),
    (error: unknown) => {
      process.stderr.write(`${String(error)}\n`)
      process.exit(1)
    },
  )
})

async function measure({ baseUrl, turns, history }: LlmJob): Promise<LlmResult> {
  const request = { model: 'm', messages: makeHistory(history), tools: [], maxTokens: 1_000 }
  let said: Said = { text: '', argumentsText: '' }
  const before = process.cpuUsage()
  for (let turn = 0; turn < turns; turn++) said = await ask(baseUrl, request)
  const { user, system } = process.cpuUsage(before)
  return { cpuMs: (user + system) / 1_000 / turns, ...said }
}

async function askClient(baseUrl: string, request: ChatRequest): Promise<Said> {
  const model = createModel({ model: request.model, maxTokens: request.maxTokens, baseUrl, maxAttempts: 1 })
  const turn = await model(request, { signal: new AbortController().signal })
  if (!turn.ok) throw new Error(turn.error.message)
  return { text: turn.value.text, argumentsText: turn.value.toolCalls[0]?.argumentsText ?? '' }
}

/** The minimum that any client does: fetch, split, JSON.parse, append. */
async function askBarely(baseUrl: string, { model, messages, maxTokens }: ChatRequest): Promise<Said> {
  const response = await fetch(`${baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model, messages: messages.map(barely), max_tokens: maxTokens, stream: true }),
  })
  if (response.body === null) throw new Error('no body')
  const decoder = new TextDecoder()
  let rest = ''
  let text = ''
  let argumentsText = ''
  for await (const bytes of response.body as AsyncIterable<Uint8Array>) {
    const events = (rest + decoder.decode(bytes, { stream: true })).split('\n\n')
    rest = events.pop() ?? ''
    for (const one of events) {
      if (one === 'data: [DONE]') continue
      const delta = (JSON.parse(one.slice(6)) as WireChunk).choices[0]?.delta
      text += delta?.content ?? ''
      argumentsText += delta?.tool_calls?.[0]?.function.arguments ?? ''
    }
  }
  return { text, argumentsText }
}

interface WireChunk {
  readonly choices: readonly {
    readonly delta: {
      readonly content?: string
      readonly tool_calls?: readonly { readonly function: { readonly arguments: string } }[]
    }
  }[]
}

/** The wire form without any checks. */
function barely(message: ChatMessage): unknown {
  if (message.role === 'tool') return { role: 'tool', tool_call_id: message.callId, content: message.content }
  if (message.role !== 'assistant') return message
  const calls = message.toolCalls.map(({ id, name, argumentsText }) => ({
    id,
    type: 'function',
    function: { name, arguments: argumentsText },
  }))
  return { role: 'assistant', content: null, tool_calls: calls }
}

/** Turns of a call and its result, of a kilobyte each. */
function makeHistory(turns: number): ChatMessage[] {
  const messages: ChatMessage[] = [
    { role: 'system', content: 'You are a benchmark.' },
    { role: 'user', content: 'Go.' },
  ]
  for (let turn = 0; turn < turns; turn++) {
    const id = `call-${turn}`
    const argumentsText = JSON.stringify({ path: `file-${turn}.txt`, content: `line "${turn}"\n`.repeat(80) })
    messages.push({ role: 'assistant', content: '', toolCalls: [{ id, name: 'write_file', argumentsText }] })
    messages.push({ role: 'tool', callId: id, content: `written ${turn} `.repeat(80) })
  }
  return messages
}
