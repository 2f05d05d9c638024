/**
 * What one step says to the model and hears from it, within the model's window: the history, how long it is, and when it is
 * made shorter. A request that turns out too long all the same teaches the window, and is made once more.
 */
import type { Turn } from '#runtime/llm/client.ts'
import type { ModelError } from '#runtime/llm/errors.ts'
import type { ChatMessage } from '#runtime/llm/messages.ts'
import type { Model, TurnHooks } from '#runtime/llm/model.ts'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import { compact } from '../context/compact.ts'
import { type Opening, windowOptionsOf } from '../context/opening.ts'
import { summariserSystemPrompt } from '../context/prompts.ts'
import { describeMessages } from '../context/sections.ts'
import { TokenMeter } from '../context/tokens.ts'
import { learnWindow, windowOf } from '../context/window.ts'
import type { AgentRun } from '../run/run.ts'
import type { SteerMessage } from '../run/steering.ts'
import { block } from '../text/prompt-block.ts'
import { truncate, truncateMiddle } from '../text/truncate.ts'
import { defaultOutputMaxChars } from '../tool-calls/call.ts'
import { readOutputName } from '../tools/read-output.ts'
import { bridgeResults, History } from './history.ts'

/** Of the room for input: where compaction begins, and what it leaves. */
const fullShare = 0.85
const targetShare = 0.5
/** Of the room for input: what one output may have. */
const outputShare = 0.25
/** Outputs up to this length are never cut, and so not kept for reading again. */
const shortOutputChars = 1_000
const summaryMaxTokens = 2_048

/** Models that were seen to refuse a user's message behind a tool's result. */
const strictModels = new WeakSet<Model>()

export class Conversation {
  readonly history: History
  readonly #stepId: string
  readonly #opening: Opening
  readonly #run: AgentRun
  readonly #meter: TokenMeter
  /** What the person wrote while the step was under way: it outlives compaction. */
  readonly #said: SteerMessage[] = []
  #summary = ''
  /** Tokens that the last compaction left: the next waits until there is more. */
  #leftTokens = 0

  constructor(stepId: string, opening: Opening, run: AgentRun) {
    this.#stepId = stepId
    this.#opening = opening
    this.#run = run
    this.#meter = new TokenMeter(JSON.stringify(run.registry.specs))
    this.history = new History(this.#open())
  }

  /** Takes in what a person wrote. */
  hear(messages: readonly SteerMessage[]): void {
    this.#said.push(...messages)
    this.history.addUser(describeMessages(messages))
  }

  /** The model's answer to the conversation as it is, made shorter first where that is due. */
  async ask(hooks: TurnHooks): Promise<Result<Turn, ModelError>> {
    if (this.#isFull()) await this.#compact(hooks)
    for (let wasLong = false; ; ) {
      const { messages } = this.history
      const answer = await this.#askOnce(messages, hooks)
      if (answer.ok) {
        this.#meter.note(messages, answer.value.usage.inputTokens)
        return answer
      }
      if (hooks.signal.aborted) return answer
      if (answer.error.code === 'context_exceeded' && !wasLong) {
        wasLong = true
        const isNews = learnWindow(windowOptionsOf(this.#run), answer.error, this.#meter.count(messages))
        const isShorter = (!isNews || this.#isFull()) && (await this.#compact(hooks))
        if (!isNews && !isShorter) return answer
      } else if (isAboutRoles(answer.error) && !strictModels.has(this.#run.model)) {
        strictModels.add(this.#run.model)
      } else return answer
    }
  }

  #askOnce(messages: readonly ChatMessage[], hooks: TurnHooks): Promise<Result<Turn, ModelError>> {
    const { model, registry } = this.#run
    const { maxTokens } = windowOf(windowOptionsOf(this.#run))
    const sent = strictModels.has(model) ? bridgeResults(messages) : messages
    const bound = maxTokens === undefined ? {} : { maxTokens }
    return model({ messages: sent, tools: registry.specs, ...bound }, hooks)
  }

  /** `output` as long as the conversation bears, with a note of where all of it can be read. */
  cutOutput(callId: string, tool: string, output: string): string {
    const { inputTokens } = windowOf(windowOptionsOf(this.#run))
    const maxChars = Math.min(defaultOutputMaxChars, this.#meter.charsFor(inputTokens * outputShare))
    const canRead = tool !== readOutputName && this.#run.registry.names.includes(readOutputName)
    if (canRead && output.length > shortOutputChars) this.#run.outputs.keep(callId, output)
    return this.#shorten(callId, output, maxChars)
  }

  #shorten(callId: string, output: string, maxChars: number): string {
    const isKept = this.#run.outputs.has(callId)
    const more = isKept ? `; ${readOutputName} with callId "${callId}" gives all of it` : ''
    return truncateMiddle(output, maxChars, more)
  }

  #open(): ReturnType<Extract<Opening, () => unknown>> {
    return typeof this.#opening === 'function' ? this.#opening() : this.#opening
  }

  /** Whether the conversation has outgrown its room, and by more than it could not be helped the last time. */
  #isFull(): boolean {
    const tokens = this.#meter.count(this.history.messages)
    const { inputTokens } = windowOf(windowOptionsOf(this.#run))
    return tokens > inputTokens * fullShare && tokens > this.#leftTokens * 1.1
  }

  /** False when there was nothing to make shorter. */
  async #compact(hooks: TurnHooks): Promise<boolean> {
    const { inputTokens } = windowOf(windowOptionsOf(this.#run))
    const meter = this.#meter
    const beforeTokens = meter.count(this.history.messages)
    const made = await compact({
      messages: this.history.messages,
      opening: this.#open(),
      meter,
      maxTokens: inputTokens,
      targetTokens: Math.min(inputTokens, beforeTokens) * targetShare,
      said: this.#said,
      earlier: this.#summary,
      left: describeLeft(this.#run),
      cutOutput: (callId, output, maxChars) => this.#shorten(callId, output, maxChars),
      summarise: (record) => this.#summarise(record, hooks),
      recordMaxChars: meter.charsFor(inputTokens * targetShare),
    })
    if (made === null || hooks.signal.aborted || !this.history.replace(made.messages)) return false
    meter.forget()
    this.#summary = made.summary === '' ? this.#summary : made.summary
    const afterTokens = meter.count(this.history.messages)
    this.#leftTokens = afterTokens
    await this.#run.report.event({
      type: 'context-compact',
      stepId: this.#stepId,
      beforeTokens,
      afterTokens,
      summary: truncate(made.summary, limits.textMaxChars),
    })
    return afterTokens < beforeTokens
  }

  /** Of its own: no tools, nothing of it shown as the step's words. Undefined when the model gives none. */
  async #summarise(record: string, { signal, onRetry }: TurnHooks): Promise<string | undefined> {
    const { maxTokens = summaryMaxTokens } = windowOf(windowOptionsOf(this.#run))
    const step = this.#open()[1]?.content ?? ''
    const asked = truncateMiddle(step.slice(Math.max(0, step.lastIndexOf('# This step'))), 4_000)
    const answer = await this.#run.model(
      {
        messages: [
          { role: 'system', content: summariserSystemPrompt() },
          { role: 'user', content: `${asked}\n\n# Record\n${block('record', record)}` },
        ],
        tools: [],
        maxTokens: Math.min(summaryMaxTokens, maxTokens),
      },
      { signal, ...(onRetry === undefined ? {} : { onRetry }) },
    )
    if (!answer.ok) {
      this.#run.logger.warn(
        { stepId: this.#stepId, code: answer.error.code },
        'no summary of the conversation',
      )
      return undefined
    }
    this.#run.budget.addUsage(answer.value.usage)
    return answer.value.text
  }
}

/** Such as `Unexpected role 'user' after role 'tool'`, of templates that know a turn of calls only with an answer behind it. */
function isAboutRoles({ code, message }: ModelError): boolean {
  const isRefusal = code === 'invalid_request' || code === 'unprocessable' || code === 'server_error'
  return isRefusal && /\broles?\b/i.test(message) && /\b(?:after|alternate|order|unexpected)\b/i.test(message)
}

function describeLeft({ budget }: AgentRun): string {
  const { calls, tokens, wallMs } = budget.left
  return `Tool calls: ${calls}. Tokens: ${tokens}. Time: ${Math.ceil(wallMs / 1000)} s.`
}
