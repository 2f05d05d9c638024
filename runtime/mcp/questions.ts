/**
 * What a server asks the person while it carries out calls: one question after another, in the name of the call that began last.
 * The clocks of all calls under way stand meanwhile, and a question is taken back with the call that it was asked in.
 */
import type { ElicitRequestParams, ElicitResult } from '@modelcontextprotocol/sdk/types.js'
import type { CallClock } from './call-clock.ts'
import { type AskPerson, answerElicitation, ElicitationRefusal } from './elicitation.ts'

/** Questions of a server that wait for an earlier one. */
const waitingMaxCount = 4

export interface CallUnderWay {
  /** Absent where nobody can be asked for it. */
  readonly ask: AskPerson | undefined
  /** Absent before the server was sent the call. */
  clock?: CallClock
}

interface OpenCall extends CallUnderWay {
  /** Made when it is first needed: few calls ask anything. */
  ending?: AbortController
}

export class ServerQuestions {
  readonly #calls = new Set<OpenCall>()
  #turn: Promise<unknown> = Promise.resolve()
  #waiting = 0

  /** @returns to be called when the call has ended */
  begin(call: CallUnderWay): () => void {
    const open: OpenCall = call
    this.#calls.add(open)
    return () => {
      this.#calls.delete(open)
      open.ending?.abort(new Error('the call ended in which it was asked'))
    }
  }

  /** The answer to the server. @throws ElicitationRefusal */
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
