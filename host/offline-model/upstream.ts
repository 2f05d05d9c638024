/**
 * The offline model: a deterministic function from a chat request to a reply, served in the protocol of a model server. It
 * sees only the conversation and is not a language model; every answer says so.
 */
import { createHash } from 'node:crypto'
import type { CompletionRequest } from '#specs/protocol/completion-request.ts'
import { offlineModel } from '../providers/providers.ts'
import type { Upstream } from '../providers/upstream.ts'
import { act, actInTurn } from './act.ts'
import { type PastConversation, readConversation } from './conversation.ts'
import { answerInForm } from './form.ts'
import { readIntent } from './intents.ts'
import { planTask, readBrief } from './plan.ts'
import { type OfflineReply, say, sayNotDone } from './reply.ts'
import { understandTask } from './understand.ts'

/** Characters of one delta. */
const deltaMaxChars = 64
/** Bytes of text that count as one token: an estimate, as there is no tokenizer. */
const bytesPerToken = 4

/** Instructions of a task that the agent began without a plan; its prompts say so. */
const wholeTaskInstructions = 'Carry out the whole task.'

export function createOfflineUpstream(): Upstream {
  return {
    async send(request) {
      const reply = answerOffline(request)
      const text = JSON.stringify(request.messages)
      const digest = createHash('sha256').update(text).digest('hex')
      const frame = { id: `chatcmpl-${digest.slice(0, 24)}`, created: 0, model: offlineModel }
      const message = toMessage(reply, digest)
      const usage = countTokens(text, JSON.stringify(message))
      const finish = reply.calls.length > 0 ? 'tool_calls' : 'stop'
      const streamed = request.stream === true
      const whole = {
        ...frame,
        object: 'chat.completion',
        choices: [{ index: 0, message: { role: 'assistant', ...message }, finish_reason: finish }],
        usage,
      }
      const parts = streamed ? streamParts(frame, message, finish, usage) : [JSON.stringify(whole)]
      return {
        ok: true,
        value: { streamed, headers: {}, requestBytes: Buffer.byteLength(text), body: toBytes(parts) },
      }
    },
    close: () => Promise.resolve(),
  }
}

interface WireMessage {
  readonly content: string | null
  readonly reasoning_content: string
  readonly tool_calls?: readonly {
    readonly id: string
    readonly type: 'function'
    readonly function: { readonly name: string; readonly arguments: string }
  }[]
}

/** Call ids derive from the conversation: the same request gets the same bytes, and ids are unique in a conversation. */
function toMessage(reply: OfflineReply, digest: string): WireMessage {
  const calls = reply.calls.map((call, index) => ({
    id: `c${digest.slice(0, 6)}${String(index).padStart(2, '0')}`,
    type: 'function' as const,
    function: { name: call.name, arguments: JSON.stringify(call.arguments) },
  }))
  return {
    content: reply.text === '' ? null : reply.text,
    reasoning_content: reply.reasoning,
    ...(calls.length > 0 ? { tool_calls: calls } : {}),
  }
}

function* streamParts(frame: object, message: WireMessage, finish: string, usage: object): Generator<string> {
  const event = (rest: object): string =>
    `data: ${JSON.stringify({ ...frame, object: 'chat.completion.chunk', ...rest })}\n\n`
  const delta = (value: object): string =>
    event({ choices: [{ index: 0, delta: value, finish_reason: null }] })
  yield delta({ role: 'assistant', content: '' })
  for (const piece of pieces(message.reasoning_content)) yield delta({ reasoning_content: piece })
  for (const piece of pieces(message.content ?? '')) yield delta({ content: piece })
  for (const [index, { id, type, function: called }] of (message.tool_calls ?? []).entries()) {
    yield delta({ tool_calls: [{ index, id, type, function: { name: called.name, arguments: '' } }] })
    for (const piece of pieces(called.arguments, 2_048)) {
      yield delta({ tool_calls: [{ index, function: { arguments: piece } }] })
    }
  }
  yield event({ choices: [{ index: 0, delta: {}, finish_reason: finish }] })
  yield event({ choices: [], usage })
  yield 'data: [DONE]\n\n'
}

/** Splits `text` without splitting a surrogate pair. */
function* pieces(text: string, maxChars = deltaMaxChars): Generator<string> {
  for (let at = 0; at < text.length; ) {
    const last = text.charCodeAt(at + maxChars - 1)
    const end = at + maxChars + (last >= 0xd800 && last <= 0xdbff ? 1 : 0)
    yield text.slice(at, end)
    at = end
  }
}

function countTokens(request: string, answer: string): object {
  const prompt = Math.ceil(Buffer.byteLength(request) / bytesPerToken)
  const completion = Math.ceil(Buffer.byteLength(answer) / bytesPerToken)
  return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion }
}

async function* toBytes(parts: Iterable<string>): AsyncGenerator<Uint8Array> {
  for (const part of parts) yield Buffer.from(part)
}

/** What a turn without calls can say of the work before it. */
function sayUnfinished({ calls }: PastConversation): OfflineReply {
  const made = [...new Set(calls.filter(({ errorCode }) => errorCode === null).map(({ name }) => name))]
  const done = made.length === 0 ? 'Nothing was done' : `These tools succeeded: ${made.join(', ')}`
  return say(`${done}. The rest is left.`, 'I may call no tools, so I say what was done.')
}

export function answerOffline(request: CompletionRequest): OfflineReply {
  const conversation = readConversation(request)
  const formed = answerInForm(request, conversation.results)
  if (formed !== null) return formed
  if (request.tool_choice === 'none' && conversation.stage !== 'other') return sayUnfinished(conversation)
  if (conversation.stage === 'plan') {
    const agentsMax = agentsLeft(conversation)
    const plan = planTask(conversation.task, conversation.workspace, agentsMax)
    const fewer = agentsMax === undefined ? '' : ` No more than ${agentsMax} sub-agents can begin.`
    const [only] = plan.steps
    const { tools } = conversation
    // With tools that write beside it, a plan of one step is begun at once; the step's later turns read the task again.
    // A run that only plans has tools, too, but none that writes.
    if (only?.kind === undefined && plan.steps.length === 1 && tools.has('write_file'))
      return actOn(conversation, conversation.task)
    const reasoning = `I match the task against a fixed set of rules.${fewer}`
    // Without the tool the plan is sent as text, which the agent accepts too.
    if (!tools.has('submit_plan')) return { reasoning, text: JSON.stringify(plan), calls: [] }
    return { reasoning, text: '', calls: [{ name: 'submit_plan', arguments: { ...plan } }] }
  }
  if (conversation.stage === 'step') {
    const { task, instructions } = conversation
    if (instructions === wholeTaskInstructions) return actOn(conversation, task)
    const intent = readIntent(instructions) ?? readBrief(instructions)
    // A step of another plan is parsed like a task.
    return intent === null ? actOn(conversation, instructions) : act(intent, conversation)
  }
  if (conversation.stage === 'workflow') return actOn(conversation, conversation.task)
  return say(
    'I answer only inside a Caisson run, in the form of its planner and steps. Set a model key for free conversation.',
    'The request has neither the planner’s nor the agent’s first line.',
  )
}

/** The next turn of work whose words are a person's. */
function actOn(conversation: PastConversation, words: string): OfflineReply {
  const read = understandTask(words, conversation.workspace)
  if (read.ok) return actInTurn(read.intents, conversation)
  if (conversation.tools.has('list_files')) return act({ kind: 'look', reason: read.reason }, conversation)
  return sayNotDone(
    `I could not do this task: ${read.reason}. I am a set of rules; set a model key for other requests.`,
    'No rule covers the words.',
  )
}

/** Sub-agents that a plan may need, after a plan was rejected for too many; else undefined. */
function agentsLeft({ calls }: PastConversation): number | undefined {
  const words = calls.map(
    ({ output }) => /\bneed \d+ sub-agents\b.* where (\d+) can begin/s.exec(output)?.[1],
  )
  const last = words.findLast((found) => found !== undefined)
  return last === undefined ? undefined : Number(last)
}
