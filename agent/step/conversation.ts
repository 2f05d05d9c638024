/**
 * One step's conversation with the model, within the model's window: history, token count and compaction. When a
 * request is still too long, the window is lowered and the request repeated once.
 */
import { isDeepStrictEqual } from 'node:util'
import type { ChatMessage } from '#runtime/llm/messages.ts'
import type { Model, Turn, TurnHooks } from '#runtime/llm/model.ts'
import type { ModelError } from '#specs/node/model-protocols/model-error.ts'
import { block } from '#specs/node/prompt-block.ts'
import type { GivenTurnSection, ShownSection } from '#specs/protocol/context-section.ts'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import { compact } from '../context/compact.ts'
import { renderTurnSections } from '../context/given-sections.ts'
import { type Opening, windowOptionsOf } from '../context/opening.ts'
import { summarizerSystemPrompt } from '../context/prompts.ts'
import { describeMessages } from '../context/sections.ts'
import { TokenMeter } from '../context/tokens.ts'
import { learnWindow, windowOf } from '../context/window.ts'
import type { AgentRun } from '../run/run.ts'
import type { SteerMessage } from '../run/steering.ts'
import { truncate, truncateMiddle } from '../text/truncate.ts'
import { defaultOutputMaxChars } from '../tool-calls/call.ts'
import { readOutputName } from '../tools/read-output.ts'
import { bridgeResults, History } from './history.ts'

/** Shares of the input limit: where compaction begins, and its target. */
const fullShare = 0.85
const targetShare = 0.5
/** Share of the input limit for one output. */
const outputShare = 0.25
/** Outputs up to this length are never cut, so they need not be kept for `read_output`. */
const shortOutputChars = 1_000
const summaryMaxTokens = 2_048
const concludeMaxTokens = 2_048

/** Models that rejected a user message after a tool result. */
const strictModels = new WeakSet<Model>()

export class Conversation {
  readonly history: History
  readonly #stepId: string
  readonly #opening: Opening
  readonly #run: AgentRun
  readonly #meter: TokenMeter
  /** Messages from the person during this step; kept by compaction. */
  readonly #said: SteerMessage[] = []
  /** The newest text of each section that hooks gave; kept by compaction. */
  readonly #told = new Map<string, GivenTurnSection>()
  #summary = ''
  /** Tokens left by the last compaction; the next waits until there are more. */
  #leftTokens = 0

  constructor(stepId: string, opening: Opening, run: AgentRun) {
    this.#stepId = stepId
    this.#opening = opening
    this.#run = run
    this.#meter = new TokenMeter(JSON.stringify(run.registry.specs))
    this.history = new History(this.#open())
  }

  /** Adds the sections whose text the conversation does not have yet, and says what of them is shown. */
  tell(sections: readonly GivenTurnSection[]): readonly ShownSection[] {
    const news = sections.filter((section) => !isDeepStrictEqual(this.#told.get(section.name), section))
    if (news.length === 0) return []
    for (const section of news) this.#told.set(section.name, section)
    const { text, shown } = renderTurnSections(news)
    this.history.addUser(text)
    return shown
  }

  /** Adds a message from the person. */
  hear(messages: readonly SteerMessage[]): void {
    this.#said.push(...messages)
    this.history.addUser(describeMessages(messages))
  }

  /** Asks the model with the current conversation, compacted first when needed. */
  async ask(hooks: TurnHooks): Promise<Result<Turn, ModelError>> {
    this.history.boundPictures()
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

  /** Asks for a last answer in words, with the same tools before it and none that may be called. */
  async conclude(hooks: TurnHooks): Promise<Result<Turn, ModelError>> {
    const { model, registry } = this.#run
    const { maxTokens = concludeMaxTokens } = windowOf(windowOptionsOf(this.#run))
    const { messages } = this.history
    return await model(
      {
        messages: strictModels.has(model) ? bridgeResults(messages) : messages,
        tools: registry.specs,
        ...(registry.specs.length === 0 ? {} : { toolChoice: 'none' as const }),
        maxTokens: Math.min(concludeMaxTokens, maxTokens),
      },
      { ...hooks, mayRetry: () => false },
    )
  }

  #askOnce(messages: readonly ChatMessage[], hooks: TurnHooks): Promise<Result<Turn, ModelError>> {
    const { model, registry } = this.#run
    const { maxTokens } = windowOf(windowOptionsOf(this.#run))
    const sent = strictModels.has(model) ? bridgeResults(messages) : messages
    const bound = maxTokens === undefined ? {} : { maxTokens }
    return model({ messages: sent, tools: registry.specs, ...bound }, hooks)
  }

  /** Cuts `output` to the length that the conversation allows, with a note where all of it can be read. */
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

  /** Whether the conversation is over its limit by more than the last compaction had to leave. */
  #isFull(): boolean {
    const tokens = this.#meter.count(this.history.messages)
    const { inputTokens } = windowOf(windowOptionsOf(this.#run))
    return tokens > inputTokens * fullShare && tokens > this.#leftTokens * 1.1
  }

  /** False when nothing could be shortened. */
  async #compact(hooks: TurnHooks): Promise<boolean> {
    const { inputTokens } = windowOf(windowOptionsOf(this.#run))
    const meter = this.#meter
    const beforeTokens = meter.count(this.history.messages)
    const made = await compact({
      messages: this.history.messages,
      // What a workflow's chat has besides is its first turns.
      opening: this.#open().slice(0, 2),
      meter,
      maxTokens: inputTokens,
      targetTokens: Math.min(inputTokens, beforeTokens) * targetShare,
      said: this.#said,
      earlier: this.#summary,
      left: describeLeft(this.#run),
      cutOutput: (callId, output, maxChars) => this.#shorten(callId, output, maxChars),
      summarize: (record) => this.#summarize(record, hooks),
      recordMaxChars: meter.charsFor(inputTokens * targetShare),
    })
    if (made === null || hooks.signal.aborted || !this.history.replace(made.messages)) return false
    if (this.#told.size > 0) this.history.addUser(renderTurnSections([...this.#told.values()]).text)
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

  /**
   * Makes a separate request without tools, not shown as the step's text. Undefined when the model gives no summary.
   */
  async #summarize(record: string, hooks: TurnHooks): Promise<string | undefined> {
    const { onText: _, onReasoning: __, mayRetry: ___, ...quiet } = hooks
    const { maxTokens = summaryMaxTokens } = windowOf(windowOptionsOf(this.#run))
    const step = this.#open()[1]?.content ?? ''
    const asked = truncateMiddle(step.slice(Math.max(0, step.lastIndexOf('# This step'))), 4_000)
    const answer = await this.#run.model(
      {
        messages: [
          { role: 'system', content: summarizerSystemPrompt() },
          { role: 'user', content: `${asked}\n\n# Record\n${block('record', record)}` },
        ],
        tools: [],
        maxTokens: Math.min(summaryMaxTokens, maxTokens),
      },
      quiet,
    )
    if (!answer.ok) {
      this.#run.logger.warn(
        { stepId: this.#stepId, code: answer.error.code },
        'no summary of the conversation',
      )
      return undefined
    }
    this.#run.budget.addUsage(answer.value.usage, this.#run.task.price)
    return answer.value.text
  }
}

/**
 * Matches errors such as `Unexpected role 'user' after role 'tool'`, from templates that require an assistant message
 * after tool results.
 */
function isAboutRoles({ code, message }: ModelError): boolean {
  const isRefusal = code === 'invalid_request' || code === 'unprocessable' || code === 'server_error'
  return isRefusal && /\broles?\b/i.test(message) && /\b(?:after|alternate|order|unexpected)\b/i.test(message)
}

function describeLeft({ budget }: AgentRun): string {
  const { calls, tokens, wallMs } = budget.left
  return `Tool calls: ${calls}. Tokens: ${tokens}. Time: ${Math.ceil(wallMs / 1000)} s.`
}
