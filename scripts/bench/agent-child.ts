/**
 * A process that has the turn loop with the library's own client and nothing else, or the floor in its place, so that its time
 * on the processor and its memory are theirs alone. Takes jobs over IPC.
 */

import type { LLMChatMessage } from '../../runtime/contract/contract.ts'
import { runTurnLoop } from '../../runtime/index.ts'

export type AgentJob =
  /** One conversation of so many turns. */
  | { readonly kind: 'turns'; readonly baseUrl: string; readonly turns: number }
  /** So many conversations at once, each over connections of the one client. */
  | { readonly kind: 'agents'; readonly baseUrl: string; readonly turns: number; readonly agents: number }
  | { readonly kind: 'memory' }

export interface AgentResult {
  /** Of the job, in milliseconds. */
  readonly cpuMs: number
  /** Equal for loop and floor. */
  readonly text: string
  readonly messages: number
  readonly transcriptChars: number
  /** After a collection: what JavaScript keeps, on and off its heap. Of the job `memory` alone. */
  readonly usedBytes: number
  readonly rssBytes: number
}

interface Spoken {
  readonly text: string
  readonly messages: readonly unknown[]
}

const talk = process.argv[2] === 'floor' ? talkBarely : talkInLoop
const result = 'written: 80 characters, and nothing else of note happened. '.repeat(3)
const opening = [
  { role: 'system', content: 'You are a benchmark.' },
  { role: 'user', content: 'Go.' },
] as const

process.on('message', (job: AgentJob & { number: number }) => {
  perform(job).then(
    (done) => process.send?.({ ...done, number: job.number }),
    (error: unknown) => {
      process.stderr.write(`${error instanceof Error ? error.stack : String(error)}\n`)
      process.exit(1)
    },
  )
})

async function perform(job: AgentJob): Promise<AgentResult> {
  const before = process.cpuUsage()
  const spoken = await runJob(job)
  const { user, system } = process.cpuUsage(before)
  const [first] = spoken
  return {
    cpuMs: (user + system) / 1_000,
    text: first?.text ?? '',
    messages: first?.messages.length ?? 0,
    transcriptChars: JSON.stringify(first?.messages ?? []).length,
    ...(job.kind === 'memory' ? measureMemory() : { usedBytes: 0, rssBytes: 0 }),
  }
}

async function runJob(job: AgentJob): Promise<readonly Spoken[]> {
  if (job.kind === 'memory') return []
  const count = job.kind === 'agents' ? job.agents : 1
  const talks = Array.from({ length: count }, (_, agent) => talk(`${job.baseUrl}/${agent}`, job.turns))
  return Promise.all(talks)
}

function measureMemory(): Pick<AgentResult, 'usedBytes' | 'rssBytes'> {
  globalThis.gc?.()
  const { heapUsed, external, rss } = process.memoryUsage()
  return { usedBytes: heapUsed + external, rssBytes: rss }
}

async function talkInLoop(baseUrl: string, turns: number): Promise<Spoken> {
  const end = await runTurnLoop<{ messages: LLMChatMessage[]; text: string }>({
    initialState: { messages: [...opening], text: '' },
    maxIterations: turns,
    maxConsecutiveToolTurns: turns,
    modelRequest: {
      provider: 'openai-compatible',
      providers: { 'openai-compatible': { baseUrl } },
      model: 'm',
    },
    buildMessages: ({ state }) => state.messages,
    onToolCallsResponse: ({ state, response }) => {
      const calls = response.tool_calls ?? []
      const told = calls.map(({ id }) => ({ role: 'tool', tool_call_id: id, content: result }) as const)
      state.messages.push(response.assistantMessage, ...told)
      const toolResults = calls.map(({ id }) => ({ toolCallId: id, content: result }))
      return { state, next: { control: 'continue' }, toolResults }
    },
    onTextResponse: ({ state, response, responseText }) => {
      state.messages.push(response.assistantMessage)
      return { state: { ...state, text: responseText } }
    },
  })
  return end.state
}

interface BareCall {
  id: string
  readonly type: 'function'
  readonly function: { name: string; arguments: string }
}

/** The least that any loop does: a fetch, a split, JSON.parse, and appending. */
async function talkBarely(baseUrl: string, turns: number): Promise<Spoken> {
  const messages: unknown[] = [...opening]
  for (let turn = 1; ; turn++) {
    const { text, call } = await askBarely(baseUrl, messages)
    if (call === null || turn === turns) {
      messages.push({ role: 'assistant', content: text })
      return { text, messages }
    }
    messages.push({ role: 'assistant', content: text, tool_calls: [call] })
    messages.push({ role: 'tool', tool_call_id: call.id, content: result })
  }
}

async function askBarely(
  baseUrl: string,
  messages: unknown,
): Promise<{ text: string; call: BareCall | null }> {
  const response = await fetch(`${baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'm', messages, max_tokens: 1_000, stream: true }),
  })
  if (response.body === null) throw new Error('no body')
  const decoder = new TextDecoder()
  let rest = ''
  let text = ''
  let call: BareCall | null = null
  for await (const bytes of response.body as AsyncIterable<Uint8Array>) {
    const events = (rest + decoder.decode(bytes, { stream: true })).split('\n\n')
    rest = events.pop() ?? ''
    for (const one of events) {
      if (one === 'data: [DONE]') continue
      const delta = (JSON.parse(one.slice(6)) as BareChunk).choices[0]?.delta
      text += delta?.content ?? ''
      const [piece] = delta?.tool_calls ?? []
      if (piece === undefined) continue
      call ??= {
        id: piece.id ?? '',
        type: 'function',
        function: { name: piece.function.name ?? '', arguments: '' },
      }
      call.function.arguments += piece.function.arguments
    }
  }
  return { text, call }
}

interface BareChunk {
  readonly choices: readonly {
    readonly delta: {
      readonly content?: string
      readonly tool_calls?: readonly { id?: string; function: { name?: string; arguments: string } }[]
    }
  }[]
}
