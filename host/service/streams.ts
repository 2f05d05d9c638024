/** Event streams as answers: within the bounds of their caller, and ended with the key or JWT that opened them. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Caller, Callers } from './callers.ts'
import { type EventStream, type RunEvents, writeFrames } from './events.ts'
import { Refusal } from './problems.ts'
import type { Quotas } from './quotas.ts'

export interface StreamParts {
  readonly events: RunEvents
  readonly quotas: Quotas
  readonly callers: Callers
  readonly log: (line: Readonly<Record<string, unknown>>) => void
  /** Answers with a problem where nothing was sent yet. */
  readonly refuse: (reply: FastifyReply, error: unknown) => void
}

/** The events of a run, for a client that accepts `text/event-stream`. */
export async function streamEvents(
  { params: { run }, query }: { params: { run: string }; query: { from?: number } },
  request: FastifyRequest,
  reply: FastifyReply,
  parts: StreamParts & { readonly caller: Caller },
): Promise<FastifyReply> {
  const last = request.headers['last-event-id']
  if (last !== undefined && !/^\d{1,15}$/.test(String(last)))
    throw new Refusal(400, 'invalid_request', 'Last-Event-ID: expected the id of an event of this stream')
  const from = last === undefined ? (query.from ?? 1) : Number(last) + 1
  takePlace(reply, parts)
  if (!takeOver(reply)) return reply
  return await send(reply, run, parts, () => parts.events.stream(run, from, reply.raw))
}

/** Sends an answer of a request that took its place among the streams of its caller. */
export async function sendStream(
  { frames }: EventStream,
  reply: FastifyReply,
  parts: StreamParts,
): Promise<FastifyReply> {
  if (!takeOver(reply)) return reply
  return await send(reply, undefined, parts, () => writeFrames(reply.raw, frames))
}

/** Counts a stream of the caller until its answer is over. @throws {Refusal} 429 */
export function takePlace(
  reply: FastifyReply,
  { quotas, caller }: Pick<StreamParts, 'quotas'> & { readonly caller: Caller },
): void {
  const closeStream = quotas.openStream(caller)
  // A client that went away before closes nothing again.
  if (reply.raw.destroyed) closeStream()
  else reply.raw.once('close', closeStream)
}

/** Keeps headers that were set so far, such as for another origin. @returns whether the client is still there */
function takeOver(reply: FastifyReply): boolean {
  for (const [header, value] of Object.entries(reply.getHeaders()))
    if (value !== undefined) reply.raw.setHeader(header, value)
  reply.hijack()
  return !reply.raw.destroyed
}

async function send(
  reply: FastifyReply,
  run: string | undefined,
  { log, refuse }: StreamParts,
  work: () => Promise<void>,
): Promise<FastifyReply> {
  try {
    await work()
  } catch (error) {
    if (reply.raw.headersSent) {
      const about = run === undefined ? {} : { run }
      log({ level: 'error', message: 'an event stream broke off', ...about, cause: String(error) })
      reply.raw.destroy()
    } else refuse(reply, error)
  }
  return reply
}
