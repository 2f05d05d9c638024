/**
 * The questions of a run, put before the person in the editor: as a choice, as a form, or in words. What the person does
 * not answer stays open in the run.
 */
import { errorMessage } from '#specs/errors.ts'
import type { PendingApproval } from '#specs/protocol/run-state.ts'
import type { ApprovalAnswer, Host, UserQuestion } from '../index.ts'
import type { Editor } from './editor.ts'
import { answerInForm, answerInWords, answerOf, choicesOf, fieldOf, hasChoices } from './permission.ts'
import { fenced, kindOf, textContent, titleOf } from './tool-calls.ts'
import { message, type RunUpdates, type Words } from './updates.ts'

export interface QuestionParts {
  readonly host: Host
  readonly runId: string
  readonly editor: Editor
  readonly updates: RunUpdates
  readonly words: Words
  /** Who answers, for the journal. */
  readonly by: string
  readonly log: (line: string) => void
}

export class Questions {
  readonly #parts: QuestionParts
  readonly #asked = new Map<string, AbortController>()
  /** What a person answers with the next prompt. */
  #inWords: { readonly approvalId: string; readonly question: UserQuestion } | undefined
  #answered = Promise.withResolvers<void>()
  #spoken = Promise.withResolvers<void>()

  constructor(parts: QuestionParts) {
    this.#parts = parts
  }

  /** Resolves when an answer counts that was given here. */
  get answered(): Promise<void> {
    return this.#answered.promise
  }

  /** Resolves when a question waits for the next prompt. */
  get asksInWords(): Promise<void> {
    return this.#spoken.promise
  }

  /** Asks in the background, each question once. */
  ask(pending: PendingApproval): void {
    const { approvalId } = pending
    if (this.#asked.has(approvalId)) return
    const withdrawal = new AbortController()
    this.#asked.set(approvalId, withdrawal)
    void this.#put(pending, withdrawal.signal).catch((error: unknown) => {
      if (!withdrawal.signal.aborted) this.#parts.log(`a question was not put: ${errorMessage(error)}`)
    })
  }

  /** It was decided, here or elsewhere. */
  withdraw(approvalId: string): void {
    this.#asked.get(approvalId)?.abort()
    if (this.#inWords?.approvalId !== approvalId) return
    this.#inWords = undefined
    this.#spoken = Promise.withResolvers()
  }

  withdrawAll(): void {
    for (const approvalId of this.#asked.keys()) this.withdraw(approvalId)
  }

  /** Takes a prompt as the answer. False: no question waits for one. */
  async answerInWords(text: string): Promise<boolean> {
    const waiting = this.#inWords
    if (waiting === undefined) return false
    const answer = answerInWords(waiting.question, text)
    this.#spoken = Promise.withResolvers<void>()
    if (answer === undefined) this.#speak(waiting.approvalId, waiting.question)
    else if (await this.#answer(waiting.approvalId, answer)) this.#inWords = undefined
    return true
  }

  async #put(pending: PendingApproval, signal: AbortSignal): Promise<void> {
    const { approvalId, question } = pending
    const { editor } = this.#parts
    if (question !== undefined && editor.hasForms) await this.#putForm(pending, question, signal)
    else if (question !== undefined && !hasChoices(question)) this.#speak(approvalId, question)
    else await this.#putChoices(pending, signal)
  }

  async #putChoices(pending: PendingApproval, signal: AbortSignal): Promise<void> {
    const { approvalId, agentPath, callId, tool, question, access } = pending
    const { editor, updates, words } = this.#parts
    const choices = choicesOf(pending.answers ?? [], question, (text) => words.line(text, 200))
    if (choices.length === 0) return this.#leave(approvalId)
    const title =
      access === undefined ? titleOf(tool, pending.arguments, agentPath) : `network access: ${access.address}`
    const chosen = await editor.askPermission(
      {
        toolCall: {
          toolCallId: updates.callIdOf(agentPath, callId) ?? approvalId,
          title: words.line(question?.question ?? title, 300),
          kind: access === undefined ? kindOf(tool) : 'fetch',
          status: 'pending',
          content: this.#explain(pending),
        },
        options: choices.map(({ option }) => option),
      },
      signal,
    )
    const answer = chosen === undefined ? undefined : answerOf(choices, chosen)
    if (answer !== undefined) await this.#answer(approvalId, answer)
    else if (!signal.aborted) this.#leave(approvalId)
  }

  async #putForm(pending: PendingApproval, question: UserQuestion, signal: AbortSignal): Promise<void> {
    const { editor, updates, words } = this.#parts
    const response = await editor.askForm(
      {
        message: words.block(question.question),
        requestedSchema: {
          type: 'object',
          properties: { answer: fieldOf(question, (text) => words.line(text, 200)) },
          required: ['answer'],
        },
        toolCallId: updates.callIdOf(pending.agentPath, pending.callId),
      },
      signal,
    )
    const answer = response === undefined ? undefined : answerInForm(question, response)
    if (answer !== undefined) await this.#answer(pending.approvalId, answer)
    else if (!signal.aborted) this.#speak(pending.approvalId, question)
  }

  /** What is asked, beside the title. */
  #explain({ preview, because, access, kind, agentPath }: PendingApproval) {
    const { words } = this.#parts
    const lines = [
      kind === 'cooperative' ? 'The agent says what it will do:' : 'The host asks:',
      ...(agentPath === 'root' ? [] : [`sub-agent ${agentPath}`]),
      ...(because === undefined ? [] : [words.line(because)]),
      ...(access === undefined ? [] : [words.line(access.because)]),
    ]
    const shown =
      preview.trim() === '' ? [] : [textContent(fenced(words.block(preview)))]
    return [textContent(lines.join('\n\n')), ...shown]
  }

  async #answer(approvalId: string, answer: ApprovalAnswer): Promise<boolean> {
    const { host, runId, by, log } = this.#parts
    const result = await host.answer(runId, approvalId, answer, { by })
    if (!result.taken) log(`an answer was not taken: ${result.message}`)
    if (result.taken) this.#answered.resolve()
    return result.taken
  }

  /** The next prompt is the answer. */
  #speak(approvalId: string, question: UserQuestion): void {
    const { editor, words } = this.#parts
    this.#inWords = { approvalId, question }
    const options = (question.options ?? []).map(({ value }) => `- ${words.line(value, 200)}`)
    const text = [
      'The agent asks:',
      fenced(words.block(question.question)),
      ...options,
      'Answer with a message.',
    ]
    void editor.tell([message(`${text.join('\n')}\n\n`)]).catch(() => undefined)
    this.#spoken.resolve()
  }

  /** Nobody decided; the run waits. */
  #leave(approvalId: string): void {
    const { editor, runId } = this.#parts
    const text = `The question stays open, and nothing is allowed. Answer it with \`caisson approvals allow ${runId} ${approvalId}\` or \`caisson approvals deny\`, or cancel.\n\n`
    void editor.tell([message(text)]).catch(() => undefined)
  }
}
