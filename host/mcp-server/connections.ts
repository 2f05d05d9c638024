/** Shares of the connections of the MCP server: each caller has its own, and so have those whose caller is not known yet. */
import type { Socket } from 'node:net'

/** 16 sessions with a stream each, 32 calls at work, and some that are free. */
export const connectionsMaxOfCaller = 64
/** Open connections on which no caller has been accepted. */
const strangersMax = 128

export class ConnectionShares {
  /** The oldest first. */
  readonly #strangers = new Set<Socket>()
  readonly #callers = new Map<Socket, string>()
  readonly #ofCallers = new Map<string, number>()

  /** Takes a new connection. With too many whose caller is not known, the oldest of these ends. */
  add(socket: Socket): void {
    this.#strangers.add(socket)
    socket.once('close', () => {
      this.#strangers.delete(socket)
      this.#leave(socket)
    })
    const [oldest] = this.#strangers
    if (this.#strangers.size <= strangersMax || oldest === undefined) return
    this.#strangers.delete(oldest)
    oldest.destroy()
  }

  /**
   * Counts the connection for the caller of its newest request; one of a proxy may have several callers.
   * @returns false where the caller has its share already
   */
  enter(socket: Socket, callerId: string): boolean {
    if (socket.destroyed || this.#callers.get(socket) === callerId) return true
    const own = this.#ofCallers.get(callerId) ?? 0
    if (own >= connectionsMaxOfCaller) return false
    this.#leave(socket)
    this.#strangers.delete(socket)
    this.#callers.set(socket, callerId)
    this.#ofCallers.set(callerId, own + 1)
    return true
  }

  #leave(socket: Socket): void {
    const callerId = this.#callers.get(socket)
    if (callerId === undefined) return
    this.#callers.delete(socket)
    const left = (this.#ofCallers.get(callerId) ?? 1) - 1
    if (left === 0) this.#ofCallers.delete(callerId)
    else this.#ofCallers.set(callerId, left)
  }
}
