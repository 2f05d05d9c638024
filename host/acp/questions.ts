/**
 * The questions of a run, put before the person in the editor: as a choice, as a form, or in words. What the person does
 * not answer stays open in the run.
 */

import { errorMessage } from '#specs/errors.ts'
import { digestOfQuestion } from '#specs/node/question-digest.ts'
import type { PendingApproval } from '#specs/protocol/run-state.ts'
import { type CleanText, noKeysHere, sayWhoAsks } from '#specs/protocol/shown-text.ts'
import type { ApprovalAnswer, Host, UserQuestion } from '../index.ts'
import type { Editor } from './editor.ts'
import { answerInForm, answerInWords, answerOf, choicesOf, fieldOf, hasChoices } from './permission.ts'
import { fenced, kindOf, textContent, titleOf } from './tool-calls.ts'
import { message, type RunUpdates } from './updates.ts'

export interface QuestionParts {
  readonly host: Host
  readonly runId: string
  readonly editor: Editor
  readonly updates: RunUpdates
  readonly words: CleanText
  /** Who answers, for the journal. */
  readonly by: string
  readonly log: (line: string) => void
}

/** A question that was put before the person. */
interface Asked {
  readonly withdrawal: AbortController
  /** Of what the person sees: an answer counts for that alone. */
  readonly digest: string
}

/** `changed`: the run asks something else by now, which is put anew. */
type Answered = 'taken' | 'refused' | 'changed'

export class Questions {
  readonly #parts: QuestionParts
  readonly #asked = new Map<string, Asked>()
  /** What a person answers with the next prompts, oldest first: the first was put, the others wait for its answer. */
  readonly #inWords = new Map<string, PendingApproval>()
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

  /** Asks in the background, each question once; again where it asks something else under its ID. */
  ask(pending: PendingApproval): void {
    const { approvalId } = pending
    const digest = this.#digestOf(pending)
    if (this.#asked.get(approvalId)?.digest === digest) return
    this.withdraw(approvalId)
    const withdrawal = new AbortController()
    this.#asked.set(approvalId, { withdrawal, digest })
    void this.#put(pending, withdrawal.signal).catch((error: unknown) => {
      if (!withdrawal.signal.aborted) this.#parts.log(`a question was not put: ${errorMessage(error)}`)
    })
  }

  /** It was decided, here or elsewhere. */
  withdraw(approvalId: string): void {
    this.#asked.get(approvalId)?.withdrawal.abort()
    const [first] = this.#inWords.keys()
    this.#inWords.delete(approvalId)
    if (first !== approvalId) return
    this.#spoken = Promise.withResolvers()
    this.#speak()
  }

  withdrawAll(): void {
    this.#inWords.clear()
    for (const approvalId of this.#asked.keys()) this.withdraw(approvalId)
  }

  /** Takes a prompt as the answer. False: no question waits for one. */
  async answerInWords(text: string): Promise<boolean> {
    const [waiting] = this.#inWords.values()
    if (waiting?.question === undefined) return false
    const { approvalId, question } = waiting
    const answer = answerInWords(question, text)
    this.#spoken = Promise.withResolvers<void>()
    const answered = answer === undefined ? 'refused' : await this.#answer(waiting, answer)
    if (answered === 'changed') return true
    const isOver = answer !== undefined && (answered === 'taken' || !this.#isOpen(approvalId))
    if (isOver) this.withdraw(approvalId)
    else this.#speak()
    return true
  }

  async #put(pending: PendingApproval, signal: AbortSignal): Promise<void> {
    const { question } = pending
    const { editor } = this.#parts
    if (question !== undefined && editor.hasForms) await this.#putForm(pending, question, signal)
    else if (question !== undefined && !hasChoices(question)) this.#putInWords(pending)
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
    if (answer !== undefined) await this.#answer(pending, answer)
    else if (!signal.aborted) this.#leave(approvalId)
  }

  async #putForm(pending: PendingApproval, question: UserQuestion, signal: AbortSignal): Promise<void> {
    const { editor, updates, words } = this.#parts
    const response = await editor.askForm(
      {
        message: `${this.#askerOf(pending)} ${noKeysHere}\n\n${quoted(words.block(question.question))}`,
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
    if (answer !== undefined && (await this.#answer(pending, answer)) === 'taken') return
    if (!signal.aborted && this.#isOpen(pending.approvalId)) this.#putInWords(pending)
  }

  /** What is asked, beside the title. */
  #explain(pending: PendingApproval) {
    const { words } = this.#parts
    const { question, preview, because, access, kind, agentPath } = pending
    const whose = kind === 'cooperative' ? 'The agent says what it will do:' : 'The host asks:'
    const lines = [
      question === undefined ? whose : this.#askerOf(pending),
      ...(agentPath === 'root' ? [] : [`sub-agent ${agentPath}`]),
      ...(because === undefined ? [] : [words.line(because)]),
      ...(access === undefined ? [] : [words.line(access.because)]),
    ]
    const text = question?.question ?? preview
    const shown = text.trim() === '' ? [] : [textContent(fenced(words.block(text)))]
    return [textContent(lines.join('\n\n')), ...shown]
  }

  #askerOf({ question, agentPath }: PendingApproval): string {
    return sayWhoAsks({ agentPath, server: question?.server }, this.#parts.words)
  }

  /** @param shown the question as the person saw it */
  async #answer(shown: PendingApproval, answer: ApprovalAnswer): Promise<Answered> {
    const { host, runId, by, editor, words } = this.#parts
    const { approvalId } = shown
    const digest = this.#digestOf(shown)
    const result = await host.answer(runId, approvalId, { ...answer, digest }, { by })
    if (!result.taken && result.reason === 'question_changed') {
      await editor.tell([
        message('The answer was not taken: the question changed meanwhile. It is asked anew.\n\n'),
      ])
      const open = await host.runs.pendingApprovals(runId)
      const now = open.find(({ approval }) => approval.approvalId === approvalId)?.approval
      if (now !== undefined) this.ask(now)
      return 'changed'
    }
    if (result.taken) this.#answered.resolve()
    else await editor.tell([message(`The answer was not taken: ${words.line(result.message)}\n\n`)])
    return result.taken ? 'taken' : 'refused'
  }

  #digestOf(approval: PendingApproval): string {
    return digestOfQuestion({ runId: this.#parts.runId, approval })
  }

  #isOpen(approvalId: string): boolean {
    return Object.hasOwn(this.#parts.updates.state.pendingApprovals, approvalId)
  }

  /** A next prompt is the answer. */
  #putInWords(pending: PendingApproval): void {
    this.#inWords.set(pending.approvalId, pending)
    if (this.#inWords.size === 1) this.#speak()
  }

  /** Puts the oldest question that is answered in words. */
  #speak(): void {
    const { editor, words } = this.#parts
    const [waiting] = this.#inWords.values()
    if (waiting?.question === undefined) return
    const { question, options = [] } = waiting.question
    const text = [
      this.#askerOf(waiting),
      fenced(words.block(question)),
      ...options.map(({ value }) => `- ${words.line(value, 200)}`),
      waiting.question.kind === 'confirm' ? 'Answer with yes or no.' : 'Answer with a message.',
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

/** Text of others as a quotation, in which no line looks like one of ours. */
function quoted(text: string): string {
  return text.replaceAll(/^/gm, '> ')
}
