/**
 * The digest of the protocol: sha256 over the canonical JSON of every method's schemas. Computing it costs tens of
 * milliseconds under emulation, so both sides carry the constant of `specs/protocol/digest.ts`; a test keeps it true.
 */
import { createHash } from 'node:crypto'
import * as z from 'zod'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import { type Method, methods } from '#specs/protocol/methods.ts'

/** 64 hex digits; equal for equal schemas, whatever the order of their keys. */
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
