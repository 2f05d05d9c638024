/**
 * A process with many clients of one event stream. Takes its order over IPC, and reports when all are connected and each
 * time that every one has one event more.
 */
import { get } from 'node:http'

export interface ClientsOrder {
  readonly url: string
  /** Empty: none. */
  readonly token: string
  readonly count: number
  /** Whether they read what comes. */
  readonly reads: boolean
}

export type ClientsReport =
  | { readonly kind: 'connected'; readonly at: number }
  | { readonly kind: 'event'; readonly at: number }
  | { readonly kind: 'failed'; readonly at: number; readonly message: string }

const now = () => performance.timeOrigin + performance.now()
const report = (message: ClientsReport): void => void process.send?.(message)

process.once('message', ({ url, token, count, reads }: ClientsOrder) => {
  let connected = 0
  /** How many clients have the event with this number, from 0. */
  const having: number[] = []
  for (let client = 0; client < count; client += 1) {
    const headers = {
      accept: 'text/event-stream',
      ...(token === '' ? {} : { authorization: `Bearer ${token}` }),
    }
    const fail = (error: Error) => report({ kind: 'failed', at: now(), message: error.message })
    get(url, { headers, agent: false }, (response) => {
      response.once('error', fail)
      if (response.statusCode !== 200) fail(new Error(`status ${response.statusCode}`))
      connected += 1
      if (connected === count) report({ kind: 'connected', at: now() })
      if (!reads) return
      let event = 0
      response.setEncoding('utf8').on('data', (text: string) => {
        // Short frames arrive whole.
        for (const line of text.split('\n')) {
          // A pause has further events behind it.
          if (!/^data: .*"(?:pause|resume)-request"/.test(line)) continue
          const has = (having[event] ?? 0) + 1
          having[event] = has
          event += 1
          if (has === count) report({ kind: 'event', at: now() })
        }
      })
    }).once('error', fail)
  }
})
