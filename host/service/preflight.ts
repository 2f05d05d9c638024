/** Answers what a browser asks before a page of another, allowed origin may call (the preflight of the Fetch standard). */
import type { FastifyReply, FastifyRequest } from 'fastify'

const allowed = {
  'access-control-allow-methods': 'GET, POST, PUT, DELETE',
  'access-control-allow-headers':
    'authorization, content-type, idempotency-key, if-none-match, last-event-id, a2a-version, a2a-extensions',
  'access-control-max-age': '600',
  vary: 'origin',
}
/** Headers that pages of another origin may read. */
export const exposedHeaders = 'location, etag'

/** @param origin that may call @returns false when it is no preflight */
export function answerPreflight(request: FastifyRequest, reply: FastifyReply, origin: string): boolean {
  if (request.method !== 'OPTIONS' || request.headers['access-control-request-method'] === undefined)
    return false
  reply
    .code(204)
    .headers({ ...allowed, 'access-control-allow-origin': origin })
    .send()
  return true
}
