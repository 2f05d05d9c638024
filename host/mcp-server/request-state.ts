/**
 * The signed state of a question that a client answers later, at any node: which run and question it was, and for which call.
 * It grants nothing by itself. The service checks the credentials of whoever comes back with it.
 */
import { createHash } from 'node:crypto'
import { createRequestStateCodec, type RequestStateCodec } from '@modelcontextprotocol/server'
import * as z from 'zod'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import { Id, RunId, Sha256 } from '#specs/protocol/text.ts'

/** A question may wait this long for its answer. */
const validSeconds = 30 * 24 * 3_600

export const QuestionState = z.strictObject({
  runId: RunId,
  approvalId: Id,
  /** Of the question that the person saw. */
  question: Sha256,
  /** Of tool and arguments of the call that asked. */
  call: Sha256,
  /** `seq` of the next event, for progress. */
  next: z.int().min(1),
})
export type QuestionState = z.infer<typeof QuestionState>

/** @param key 32 bytes, the same at each node */
export function questionStates(key: Uint8Array, callerId: string): RequestStateCodec<QuestionState> {
  return createRequestStateCodec<QuestionState>({ key, ttlSeconds: validSeconds, bind: () => callerId })
}

export function digestOfCall(tool: string, given: unknown): string {
  return createHash('sha256').update(toCanonicalJson({ tool, given })).digest('hex')
}
