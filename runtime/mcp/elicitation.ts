/**
 * Questions from a server to the person during calls (`elicitation/create`, MCP 2025-11-25), one for each form field:
 * one at a time, on behalf of the most recent call. The clocks of all active calls stop meanwhile. Refuses requests for
 * secrets, content that cannot be shown whole, and addresses to open. The caller decides whether anyone is asked.
 */
import type { ElicitRequestFormParams, ElicitRequestParams, ElicitResult } from '@modelcontextprotocol/client'
import { limits } from '#specs/protocol/limits.ts'
import { isAnswerTo, type UserAnswer, UserQuestion } from '#specs/protocol/question.ts'
import type { CallClock } from './call-clock.ts'
import { type FieldRule, readField } from './elicited-field.ts'

/** Asks the person one question; null without an answer. Aborting the signal withdraws it. */
export type AskPerson = (question: UserQuestion, signal: AbortSignal) => Promise<UserAnswer | null>

/** Why a server's request is not shown, with text for the server. */
export class ElicitationRefusal extends Error {}

const fieldsMaxCount = 8
const messageMaxChars = 4_000
/** How often one field is asked when the server does not accept the answer. */
const triesMaxCount = 3

/** Terms that mark a field or its description as a request for a secret. */
const secretWords =
  /\b(?:pass ?(?:word|phrase|code)|passwd|pwd|secret|credentials?|(?:api|access|private|secret|signing|ssh|encryption) ?key|(?:access|api|auth|authentication|bearer|refresh|session|security) ?token|cvv|cvc|(?:credit|debit) ?card|card number|one time (?:code|password)|otp|pin(?: code)?|seed phrase|mnemonic|social security|ssn)\b/i
/** Terms that count as the whole name of a field. */
const secretName = /^(?:token|key|auth)$/i

interface Field {
  readonly name: string
  readonly isRequired: boolean
  readonly rule: FieldRule
}

/** @throws ElicitationRefusal */
export async function answerElicitation(
  params: ElicitRequestParams,
  ask: AskPerson,
  signal: AbortSignal,
): Promise<ElicitResult> {
  if (params.mode === 'url') throw new ElicitationRefusal('this client opens no addresses for servers')
  const fields = readFields(params)
  const message = cut(params.message, messageMaxChars)
  if (fields.length === 0) {
    const isAllowed = await ask({ question: message.trim() === '' ? '?' : message, kind: 'confirm' }, signal)
    return isAllowed === true ? { action: 'accept', content: {} } : { action: 'decline' }
  }
  const answers = new Map<string, UserAnswer>()
  for (const [at, field] of fields.entries()) {
    const head = fields.length === 1 ? '' : `${at + 1} of ${fields.length}. `
    const answer = await askField(field, (line) => `${message}\n\n${head}${line}`, ask, signal)
    if (answer !== null) answers.set(field.name, answer)
    else if (field.isRequired) return { action: 'decline' }
  }
  if (answers.size === 0) return { action: 'decline' }
  return { action: 'accept', content: Object.fromEntries(answers) }
}

/** All fields of the form, in order; parsed before anything is asked. */
function readFields({ message, requestedSchema }: ElicitRequestFormParams): Field[] {
  const entries = Object.entries(requestedSchema.properties)
  if (entries.length > fieldsMaxCount)
    throw new ElicitationRefusal(`a person is asked for at most ${fieldsMaxCount} fields at once`)
  return entries.map(([name, schema]) => {
    const rule = readField(name, schema)
    if (typeof rule === 'string') throw new ElicitationRefusal(`${name.slice(0, 100)}: ${rule}`)
    const isFree = rule.form.kind === 'text' || rule.form.kind === 'number'
    if (isFree && asksForSecret(name, [message, schema.title ?? '', schema.description ?? '']))
      throw new ElicitationRefusal(
        'a person is asked for no password, key or token: the user can give one to this server in its configuration',
      )
    return { name, rule, isRequired: requestedSchema.required?.includes(name) === true }
  })
}

function asksForSecret(name: string, words: readonly string[]): boolean {
  if (secretName.test(name)) return true
  return [name, ...words].some((text) => secretWords.test(spaced(cut(text, messageMaxChars))))
}

/** Splits `apiKey`, `api_key` and `api-key` into words. */
function spaced(text: string): string {
  return text.replaceAll(/([a-z])(?=[A-Z])/g, '$1 ').replaceAll(/[\s_-]+/g, ' ')
}

/** The answer to one field, asked again while invalid; null when there is none. */
async function askField(
  { rule, isRequired }: Field,
  frame: (line: string) => string,
  ask: AskPerson,
  signal: AbortSignal,
): Promise<UserAnswer | null> {
  const left = isRequired ? '' : ' (it may be left unanswered)'
  let problem = ''
  for (let tries = 0; tries < triesMaxCount; tries++) {
    const question = UserQuestion.safeParse({
      ...rule.form,
      question: cut(frame(`${rule.words}${left}${problem}`), limits.textMaxChars),
    })
    if (!question.success) throw new ElicitationRefusal('a person can be shown no such question')
    const answer = await ask(question.data, signal)
    if (answer === null || !isAnswerTo(question.data, answer)) return null
    const wrong = rule.problemOf(answer)
    if (wrong === null) return answer
    problem = `\nThe last answer was not taken: expected ${wrong}.`
  }
  return null
}

function cut(text: string, maxChars: number): string {
  return text.length <= maxChars ? text.toWellFormed() : `${text.slice(0, maxChars - 2).toWellFormed()} …`
}

/** Maximum questions of a server that wait for an earlier one. */
const waitingMaxCount = 4

export interface CallUnderWay {
  /** Absent when nobody can be asked. */
  readonly ask: AskPerson | undefined
  /** Absent until the call was sent to the server. */
  clock?: CallClock
}

interface OpenCall extends CallUnderWay {
  /** Created on first use: few calls ask anything. */
  ending?: AbortController
}

export class ServerQuestions {
  readonly #calls = new Set<OpenCall>()
  #turn: Promise<unknown> = Promise.resolve()
  #waiting = 0

  /** @returns a function to call when the call has ended */
  begin(call: CallUnderWay): () => void {
    const open: OpenCall = call
    this.#calls.add(open)
    return () => {
      this.#calls.delete(open)
      open.ending?.abort(new Error('the call ended in which it was asked'))
    }
  }

  /** The answer for the server. @throws {ElicitationRefusal} */
  async answer(params: ElicitRequestParams, signal: AbortSignal): Promise<ElicitResult> {
    const call = [...this.#calls].findLast(({ ask }) => ask !== undefined)
    if (call?.ask === undefined)
      throw new ElicitationRefusal('a person is asked only while a tool is called, and where one can be')
    if (this.#waiting >= waitingMaxCount)
      throw new ElicitationRefusal(`more than ${waitingMaxCount} questions at once are not put to a person`)
    this.#waiting += 1
    const { ask } = call
    call.ending ??= new AbortController()
    const withdrawn = AbortSignal.any([signal, call.ending.signal])
    const turn = this.#turn.then(() => this.#put(params, ask, withdrawn))
    this.#turn = turn.catch(() => undefined)
    try {
      return await turn
    } finally {
      this.#waiting -= 1
    }
  }

  async #put(params: ElicitRequestParams, ask: AskPerson, signal: AbortSignal): Promise<ElicitResult> {
    signal.throwIfAborted()
    const releases = [...this.#calls].map(({ clock }) => clock?.hold())
    try {
      return await answerElicitation(params, ask, signal)
    } finally {
      for (const release of releases) release?.()
    }
  }
}
