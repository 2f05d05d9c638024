/**
 * Questions from a server to the person during calls: one at a time, on behalf of the most recent call. The clocks of
 * all active calls stop meanwhile, and the end of its call withdraws a question.
 */
import type { ElicitRequestParams, ElicitResult } from '@modelcontextprotocol/sdk/types.js'
import type { CallClock } from './call-clock.ts'
import { type AskPerson, answerElicitation, ElicitationRefusal } from './elicitation.ts'

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
