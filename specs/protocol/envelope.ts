/**
 * Validates the outer form of a JSON-RPC 2.0 message before the library sees it, and limits the message rate. Refuses
 * what the library handles badly: batches, null ids, ids of other types, empty cancellations.
 */
import { limits } from './limits.ts'

const knownKeys = new Set(['jsonrpc', 'id', 'method', 'params', 'result', 'error'])
const maxMethodChars = 64
const cancelMethod = '$/cancelRequest'

/** Why `value` is not a valid message, or null. */
export function findEnvelopeFault(value: unknown): string | null {
  if (!isPlainObject(value)) return 'a message is not an object'
  if (value.jsonrpc !== '2.0') return 'a message is not JSON-RPC 2.0'
  for (const key of Object.keys(value))
    if (!knownKeys.has(key)) return 'a message has a field that is not known'
  if (value.id !== undefined && !isId(value.id)) return 'an id is neither a whole number nor a short string'
  return value.method === undefined ? findResponseFault(value) : findCallFault(value)
}

function findCallFault(message: Record<string, unknown>): string | null {
  const { id, method, params } = message
  if (typeof method !== 'string' || method.length > maxMethodChars) return 'a method is not a short string'
  if ('result' in message || 'error' in message) return 'a message is both a call and an answer'
  if (params !== undefined && !isPlainObject(params)) return 'params are not an object'
  if (!method.startsWith('$/')) return null
  if (method !== cancelMethod || id !== undefined) return 'a method of the library that is not in use'
  return isPlainObject(params) && isId(params.id) ? null : 'a cancellation names no request'
}

function findResponseFault(message: Record<string, unknown>): string | null {
  if (message.id === undefined) return 'an answer has no id'
  if ('params' in message) return 'an answer has params'
  if ('result' in message === 'error' in message) return 'an answer has not exactly one of result and error'
  if (!('error' in message)) return null
  const { error } = message
  if (!isPlainObject(error) || !Number.isSafeInteger(error.code) || typeof error.message !== 'string') {
    return 'an error has no code and message'
  }
  return null
}

function isId(id: unknown): boolean {
  return Number.isSafeInteger(id) || (typeof id === 'string' && id.length <= 64)
}

function isPlainObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

const averagedOverSeconds = 10

/** A token bucket of ten seconds; `take` returns whether one more message is within the rate. */
export function createRateLimit(
  now: () => number,
  perSecond: number = limits.guestMaxMessagesPerSecond,
): { take(): boolean } {
  const capacity = perSecond * averagedOverSeconds
  let tokens = capacity
  let last = now()
  return {
    take() {
      const time = now()
      tokens = Math.min(capacity, tokens + ((time - last) * perSecond) / 1_000)
      last = time
      if (tokens < 1) return false
      tokens--
      return true
    },
  }
}
