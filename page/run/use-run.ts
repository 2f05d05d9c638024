/** Follows a run: its events from the first on, then as they happen, also across a restart of the service. */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks'
import { useSession } from '../session/session.ts'
import { RunHistory } from './history.ts'
import { RunLive } from './live.ts'

export type Connection = 'connecting' | 'live' | 'reconnecting' | 'over' | 'refused'

export interface FollowedRun {
  readonly history: RunHistory
  readonly live: RunLive
  readonly connection: Connection
  readonly error: string | undefined
  /** Increases with each change. */
  readonly version: number
  /** Opens the stream again: events can follow the end of a run, such as those of an apply. */
  readonly follow: () => void
}

/** Between two drawings. */
const drawEveryMs = 50
/** Work on events before the browser gets its turn. */
const turnMs = 10

export function useRun(run: string): FollowedRun {
  const { client, fail } = useSession()
  const parts = useRef<{ history: RunHistory; live: RunLive } | null>(null)
  parts.current ??= { history: new RunHistory(), live: new RunLive() }
  const { history, live } = parts.current
  const [connection, setConnection] = useState<Connection>('connecting')
  const [error, setError] = useState<string>()
  const [version, setVersion] = useState(0)
  const [asked, setAsked] = useState(0)
  const again = useCallback(() => setAsked((number) => number + 1), [])
  useEffect(() => {
    const ending = new AbortController()
    let timer: ReturnType<typeof setTimeout> | undefined
    const draw = () => {
      timer ??= setTimeout(() => {
        timer = undefined
        setVersion((number) => number + 1)
      }, drawEveryMs)
    }
    const follow = async () => {
      let turnEnds = performance.now() + turnMs
      const events = client.events(run, {
        from: history.next,
        signal: ending.signal,
        onConnection: (state) => setConnection(state === 'open' ? 'live' : 'reconnecting'),
      })
      for await (const item of events) {
        if (item.source === 'delta') live.add(item.delta, item.agentPath)
        else {
          history.add(item)
          live.settle(item.event, item.source === 'agent' ? item.agentPath : 'root')
        }
        draw()
        if (performance.now() < turnEnds) continue
        await new Promise((resolve) => setTimeout(resolve))
        turnEnds = performance.now() + turnMs
      }
      if (!ending.signal.aborted) setConnection('over')
    }
    follow().catch((thrown: unknown) => {
      if (ending.signal.aborted) return
      setError(fail(thrown))
      setConnection('refused')
    })
    return () => {
      ending.abort()
      clearTimeout(timer)
    }
  }, [run, client, asked])
  return { history, live, connection, error, version, follow: again }
}
