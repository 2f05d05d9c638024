/** Reads something again and again while the page is visible. */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks'
import { useSession } from './session.ts'

export interface Polled<T> {
  /** Undefined before the first answer. */
  readonly value: T | undefined
  /** Why the last read failed; undefined: it did not. */
  readonly error: string | undefined
  /** Reads at once. */
  readonly refresh: () => void
}

/** @param key a new one drops the value and reads again */
export function usePoll<T>(
  key: string,
  everyMs: number,
  read: (signal: AbortSignal) => Promise<T>,
): Polled<T> {
  const { fail } = useSession()
  const [state, setState] = useState<{ key: string; value?: T; error?: string }>({ key })
  const [asked, setAsked] = useState(0)
  const latest = useRef(read)
  latest.current = read
  useEffect(() => {
    const ending = new AbortController()
    let timer: ReturnType<typeof setTimeout> | undefined
    const step = async () => {
      try {
        const value = await latest.current(ending.signal)
        if (!ending.signal.aborted) setState({ key, value })
      } catch (thrown) {
        if (!ending.signal.aborted) {
          const error = fail(thrown)
          setState((before) => (before.key === key ? { ...before, error } : { key, error }))
        }
      }
      if (!ending.signal.aborted) timer = setTimeout(() => void next(), everyMs)
    }
    const next = async () => {
      if (document.visibilityState === 'hidden')
        document.addEventListener('visibilitychange', () => void step(), {
          once: true,
          signal: ending.signal,
        })
      else await step()
    }
    void step()
    return () => {
      ending.abort()
      clearTimeout(timer)
    }
  }, [key, everyMs, asked])
  const refresh = useCallback(() => setAsked((number) => number + 1), [])
  const isCurrent = state.key === key
  return { value: isCurrent ? state.value : undefined, error: isCurrent ? state.error : undefined, refresh }
}
