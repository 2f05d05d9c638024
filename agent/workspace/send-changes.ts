/** Sends the change set to the host as one `POST /changes/RUN`, and verifies that the host has received all of it. */

import type { ClientHttp2Stream } from 'node:http2'
import { errorMessage } from '#specs/errors.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { GuestHttp } from '../link/http.ts'
import { type CollectOptions, type CollectSummary, collectChanges } from './collect.ts'

/** Counts of what was sent; fails when the host refuses the stream or the session ends. */
export async function sendChanges(
  runId: string,
  http: GuestHttp,
  options: CollectOptions & { readonly signal: AbortSignal },
): Promise<Result<CollectSummary>> {
  try {
    const headers = {
      ':method': 'POST',
      ':path': `/changes/${runId}`,
      'content-type': 'application/octet-stream',
    }
    const stream = await http.openStream(headers, { signal: options.signal })
    try {
      const answered = statusOf(stream)
      const collected = await Promise.race([collectChanges(stream, options), refusal(answered)])
      if (!collected.ok) return collected
      stream.end()
      const status = await answered
      return status >= 200 && status < 300 ? collected : refused(status)
    } finally {
      stream.destroy()
    }
  } catch (error) {
    const word = errorMessage(error)
    return unavailable(`the change set could not be sent: ${word}`)
  }
}

/** The host's answer. Never causes an unhandled rejection before it is awaited. */
function statusOf(stream: ClientHttp2Stream): Promise<number> {
  const status = new Promise<number>((resolve, reject) => {
    stream.once('response', (headers) => {
      // The answer has no expected content; unread data would hold the stream open.
      stream.resume()
      resolve(headers[':status'] ?? 0)
    })
    stream.once('error', reject)
    stream.once('close', () => reject(new Error('the stream was closed without an answer')))
  })
  status.catch(() => undefined)
  return status
}

/** Settles only when the host answers early, which is a refusal: it has not seen the end yet. */
async function refusal(answered: Promise<number>): Promise<Result<CollectSummary>> {
  const status = await answered
  if (status >= 200 && status < 300) return new Promise(() => undefined)
  return refused(status)
}

function refused(status: number): {
  ok: false
  error: { code: 'unavailable'; message: string; retryable: boolean }
} {
  return unavailable(`the host did not take the change set (status ${status})`)
}

function unavailable(message: string): {
  ok: false
  error: { code: 'unavailable'; message: string; retryable: boolean }
} {
  return { ok: false, error: { code: 'unavailable', message, retryable: true } }
}
