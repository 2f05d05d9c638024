/**
 * Resolves names like the host's own programs (hosts file, VPN, resolver). A lookup blocks a thread that file access
 * also needs, so only a few run at once; a caller that waits too long gets an error.
 */
import { lookup } from 'node:dns/promises'
import type { Result } from '#specs/protocol/error.ts'

/** All addresses of a name in the resolver's order, or why there are none. */
export type Resolve = (
  name: string,
  signal: AbortSignal,
) => Promise<Result<readonly string[], ResolveFailure>>

export interface ResolveFailure {
  readonly kind: 'not-found' | 'failed' | 'timeout' | 'cancelled'
  /** Excludes the name; for example `is not known (ENOTFOUND)`. */
  readonly message: string
}

interface ResolverOptions {
  /** Absent: the system's resolver. */
  readonly lookup?: (name: string) => Promise<readonly { readonly address: string }[]>
  /** Absent: 10 s. */
  readonly timeoutMs?: number
}

/** Node uses four threads for files and lookups together. */
const lookupsAtOnce = 2
const defaultTimeoutMs = 10_000

export function createResolver(options: ResolverOptions = {}): Resolve {
  const find = options.lookup ?? ((name) => lookup(name, { all: true, order: 'verbatim' }))
  const timeoutMs = options.timeoutMs ?? defaultTimeoutMs
  const slots = new Slots(lookupsAtOnce)
  return async (name, signal) => {
    const ended = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)])
    const cut = Promise.withResolvers<ResolveFailure>()
    const onEnd = (): void => cut.resolve(signal.aborted ? cancelled : timedOut(timeoutMs))
    ended.addEventListener('abort', onEnd, { once: true })
    if (ended.aborted) onEnd()
    try {
      const found = await Promise.race([slots.use(() => find(name), ended).catch(failureOf), cut.promise])
      if ('kind' in found) return { ok: false, error: found }
      const addresses = [...new Set(found.map(({ address }) => address))]
      return addresses.length > 0 ? { ok: true, value: addresses } : { ok: false, error: unknown }
    } finally {
      ended.removeEventListener('abort', onEnd)
    }
  }
}

/** Limits concurrent work. Work keeps its slot until it is done, even if its caller gives up. */
class Slots {
  #free: number
  readonly #waiting: (() => void)[] = []

  constructor(count: number) {
    this.#free = count
  }

  /** @param ended leaves the queue */
  async use<T>(work: () => Promise<T>, ended: AbortSignal): Promise<T> {
    if (this.#free > 0) this.#free -= 1
    else await new Promise<void>((resolve) => this.#waiting.push(resolve))
    try {
      ended.throwIfAborted()
      return await work()
    } finally {
      const next = this.#waiting.shift()
      if (next === undefined) this.#free += 1
      else next()
    }
  }
}

const unknown: ResolveFailure = { kind: 'not-found', message: 'is not known (it has no addresses)' }
const cancelled: ResolveFailure = { kind: 'cancelled', message: 'is not looked up any more' }

function timedOut(timeoutMs: number): ResolveFailure {
  return { kind: 'timeout', message: `could not be looked up within ${timeoutMs / 1000} s` }
}

function failureOf(error: unknown): ResolveFailure {
  const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown error'
  const isMissing = code === 'ENOTFOUND' || code === 'ENODATA'
  return isMissing
    ? { kind: 'not-found', message: `is not known (${code})` }
    : { kind: 'failed', message: `could not be looked up (${code})` }
}

/** The system's resolver, shared by the process. */
export const resolveName: Resolve = createResolver()
