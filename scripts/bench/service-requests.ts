/** A process that sends requests for some seconds, by autocannon, and reports its count of answers. Takes its order over IPC. */
import autocannon from 'autocannon'

export interface LoadOrder {
  readonly url: string
  /** Empty: none. */
  readonly token: string
}

export interface LoadReport {
  readonly perSecond: number
  readonly answered: number
  /** Errors, timeouts and answers other than 2xx. */
  readonly failed: number
}

const CONNECTIONS = 32
const SECONDS = 2

process.once('message', async ({ url, token }: LoadOrder) => {
  const { requests, errors, timeouts, non2xx } = await autocannon({
    url,
    connections: CONNECTIONS,
    duration: SECONDS,
    headers: token === '' ? {} : { authorization: `Bearer ${token}` },
  })
  const report: LoadReport = {
    perSecond: requests.average,
    answered: requests.total,
    failed: errors + timeouts + non2xx,
  }
  process.send?.(report)
  process.disconnect()
})
