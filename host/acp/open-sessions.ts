/** Sessions that are open in one connection, and the last ones that were closed, so that a request for one learns what it is. */
import { noSession, notPossibleNow } from './refusals.ts'
import type { Session } from './session.ts'

/** Of one connection. */
const sessionsMax = 256

export class OpenSessions {
  readonly #sessions = new Map<string, Session>()
  /** Ids of the last sessions that were closed. */
  readonly #closed = new Set<string>()

  /** @throws {RequestError} for one that is not open */
  find(sessionId: string): Session {
    const found = this.#sessions.get(sessionId)
    if (found === undefined) throw noSession(sessionId, this.#closed.has(sessionId) ? 'closed' : 'unknown')
    return found
  }

  get(sessionId: string): Session | undefined {
    return this.#sessions.get(sessionId)
  }

  /** @throws {RequestError} where no further one may be open */
  requirePlace(sessionId: string): void {
    if (this.#sessions.size >= sessionsMax && !this.#sessions.has(sessionId))
      throw notPossibleNow(`at most ${sessionsMax} sessions may be open; close one first`)
  }

  /** In the place of an earlier one with its ID. */
  add(sessionId: string, session: Session): void {
    this.#sessions.get(sessionId)?.leave()
    this.#sessions.set(sessionId, session)
  }

  drop(sessionId: string): void {
    this.#sessions.get(sessionId)?.leave()
    if (!this.#sessions.delete(sessionId)) return
    const [oldest] = this.#closed
    if (this.#closed.size >= sessionsMax && oldest !== undefined) this.#closed.delete(oldest)
    this.#closed.add(sessionId)
  }

  leave(): void {
    for (const session of this.#sessions.values()) session.leave()
    this.#sessions.clear()
  }
}
