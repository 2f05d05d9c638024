/**
 * Tells the watchers of a run what it has changed so far: asks the guest for a look after calls of tools, and asks
 * nothing while nobody watches. A look that fails is left out; the change set at the end counts.
 */
import type { ChangedPath, WorkspaceLook } from '#specs/protocol/change.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { RpcFailure } from '#specs/protocol/peer.ts'
import { flagByPath } from '../../workspace/index.ts'
import type { GuestRecord } from './guest-parts.ts'

const pauseMs = 2_000
/** A look takes at most this part of the guest's time, and of the host's to judge its paths. */
const pausePerLook = 10

export class LiveChanges implements Disposable {
  readonly #record: Pick<GuestRecord, 'feed' | 'delta'>
  /** Undefined while the guest cannot be asked. */
  readonly #ask: () => Promise<Result<WorkspaceLook, RpcFailure>> | undefined
  #timer: NodeJS.Timeout | undefined
  #isDue = false
  #isAsking = false
  #isOver = false
  #notBefore = 0
  #last: string = JSON.stringify({ type: 'changes', paths: [], isPartial: false })

  constructor(
    record: Pick<GuestRecord, 'feed' | 'delta'>,
    ask: () => Promise<Result<WorkspaceLook, RpcFailure>> | undefined,
  ) {
    this.#record = record
    this.#ask = ask
  }

  /** A tool has ended, which may have changed files. */
  note(): void {
    this.#isDue = true
    this.#plan()
  }

  [Symbol.dispose](): void {
    this.#isOver = true
    clearTimeout(this.#timer)
  }

  #plan(): void {
    if (this.#isOver || this.#isAsking || !this.#isDue || this.#timer !== undefined) return
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined
        void this.#look()
      },
      Math.max(0, this.#notBefore - performance.now()),
    ).unref()
  }

  async #look(): Promise<void> {
    const asked = this.#record.feed.isWatched ? this.#ask() : undefined
    // The next call of a tool asks again.
    if (asked === undefined) return
    this.#isDue = false
    this.#isAsking = true
    const startedAt = performance.now()
    const answer = await asked.catch(() => undefined)
    this.#isAsking = false
    if (this.#isOver) return
    if (answer?.ok === true) this.#tell(answer.value)
    const now = performance.now()
    this.#notBefore = now + Math.max(pauseMs, pausePerLook * (now - startedAt))
    this.#plan()
  }

  #tell({ paths, isPartial }: WorkspaceLook): void {
    const known = new Map(paths.map((change) => [change.path, change]))
    const delta = { type: 'changes', paths: [...known.values()].map(withFlag), isPartial } as const
    const text = JSON.stringify(delta)
    if (text === this.#last) return
    this.#last = text
    this.#record.delta('root', delta)
  }
}

function withFlag(change: ChangedPath): ChangedPath {
  const flag = flagByPath(change.path)
  return flag === undefined ? change : { ...change, flags: [flag] }
}
