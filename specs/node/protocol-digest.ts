/**
 * The digest of the protocol: sha256 over the canonical JSON of every method's schemas. Computing it takes tens of
 * milliseconds under emulation, so both sides use the constant in `specs/protocol/digest.ts`; a test verifies it.
 */
import { createHash } from 'node:crypto'
import * as z from 'zod'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import { type Method, methods } from '#specs/protocol/methods.ts'

/** 64 hex digits; equal for equal schemas, regardless of key order. */
export function computeProtocolDigest(): string {
  const described = methods.map((method: Method) => ({
    name: method.name,
    kind: method.kind,
    direction: method.direction,
    params: z.toJSONSchema(method.params),
    result: method.kind === 'request' ? z.toJSONSchema(method.result) : null,
  }))
  return createHash('sha256').update(toCanonicalJson(described)).digest('hex')
}
