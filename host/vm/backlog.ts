// A FIFO queue of callers that wait for values, each until its deadline or its signal.

import { AwakeTimer } from '#specs/node/awake-timer.ts'
import { VmError } from './vm-error.ts'

interface WaitOptions {
  /** On the clock of performance.now(). */
  readonly deadline: number
  /** Describes the error at the deadline: what was expected and why it did not arrive. */
  readonly describe: () => { readonly expected: string; readonly seen: string; readonly remedy: string }
  readonly signal?: AbortSignal
  /** Called with the caller's place, 1 is next, at the start of the wait and at each change. */
  readonly onPlace?: (place: number) => void
}

interface Caller<T> {
  readonly resolve: (value: T) => void
  readonly reject: (error: unknown) => void
  readonly onPlace: ((place: number) => void) | undefined
  /** The last reported place. */
  place: number
}

export class Backlog<T> {
  readonly #callers: Caller<T>[] = []

  get length(): number {
    return this.#callers.length
  }

  /**
   * Resolves with the value of {@link serve}. @throws VmError `pool_full` at the deadline, `cancelled` by the signal
   */
  wait({ deadline, describe, signal, onPlace }: WaitOptions): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>()
    const caller: Caller<T> = { resolve, reject, onPlace, place: 0 }
    const leave = (error: VmError) => {
      const place = this.#callers.indexOf(caller)
      if (place >= 0) this.#callers.splice(place, 1)
      reject(error)
      this.#tellPlaces()
    }
    const onAbort = () => leave(waitCancelled('gave up'))
    const onDeadline = () => leave(new VmError({ kind: 'pool_full', phase: 'prepare', ...describe() }))
    const timer = new AwakeTimer(Math.max(0, deadline - performance.now()), onDeadline)
    signal?.addEventListener('abort', onAbort, { once: true })
    this.#callers.push(caller)
    this.#tellPlaces()
    return promise.finally(() => {
      timer.cancel()
      signal?.removeEventListener('abort', onAbort)
    })
  }

  /** Gives the value to the first caller; false if no one waits. */
  serve(value: T): boolean {
    const caller = this.#callers.shift()
    caller?.resolve(value)
    this.#tellPlaces()
    return caller !== undefined
  }

  /** Rejects the first caller. */
  refuse(error: unknown): void {
    this.#callers.shift()?.reject(error)
    this.#tellPlaces()
  }

  /** Rejects all callers. */
  clear(error: unknown): void {
    for (const { reject } of this.#callers.splice(0)) reject(error)
  }

  /** Tells each caller its place, if that changed. */
  #tellPlaces(): void {
    for (const [index, caller] of this.#callers.entries()) {
      if (caller.place === index + 1) continue
      caller.place = index + 1
      caller.onPlace?.(caller.place)
    }
  }
}

export function waitCancelled(why: string): VmError {
  return new VmError({
    kind: 'cancelled',
    phase: 'prepare',
    expected: 'a VM of the pool',
    seen: why,
    remedy: 'No action is needed.',
  })
}
