/** The public keys of a JWKS document (RFC 7517). Refuses a document with a private or symmetric key. */
import { createLocalJWKSet, type JWTVerifyGetKey } from 'jose'
import * as z from 'zod'
import type { Result } from '#specs/protocol/error.ts'
import { parseJson } from '../files/json.ts'

/** Of a JWKS document. */
export const keySetMaxBytes = 128 * 1024
const keysMaxCount = 64
/** Asymmetric alone: whoever reads a public key could sign with it as the secret of an HMAC. */
export const algorithms = [
  ...(['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'] as const),
  ...(['ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519'] as const),
] as const

/** `text` is the document, to tell whether another reading gave other keys. */
export interface KeySet {
  readonly text: string
  readonly keyOf: JWTVerifyGetKey
}

/** Fields of private and symmetric keys, by RFC 7518. */
const secretFields = ['d', 'p', 'q', 'dp', 'dq', 'qi', 'oth', 'k', 'priv']

const Base64Url = z.string().regex(/^[A-Za-z0-9_-]+$/)
const common = {
  kid: z.string().min(1).max(256).exactOptional(),
  use: z.literal('sig').exactOptional(),
  key_ops: z.array(z.string()).max(16).exactOptional(),
  alg: z.enum(algorithms).exactOptional(),
}
/** Keys that can sign with one of the algorithms; a field that is not named here, such as `x5u`, is left out. */
const SigningKey = z.discriminatedUnion('kty', [
  // From 2048 bits, since fewer are broken, up to 8192, since more take long.
  z.object({ ...common, kty: z.literal('RSA'), n: Base64Url.min(342).max(1_366), e: Base64Url.max(6) }),
  z.object({
    ...{ ...common, kty: z.literal('EC'), crv: z.enum(['P-256', 'P-384', 'P-521']) },
    ...{ x: Base64Url.max(88), y: Base64Url.max(88) },
  }),
  z.object({ ...common, kty: z.literal('OKP'), crv: z.literal('Ed25519'), x: Base64Url.length(43) }),
])
const Document = z.looseObject({ keys: z.array(z.looseObject({})) })

/** @returns an error that continues "the JWKS …", without words of the document */
export function parseKeySet(text: string): Result<KeySet, string> {
  const document = Document.safeParse(parseJson(text))
  if (!document.success) return { ok: false, error: 'is not JSON with a list "keys"' }
  const { keys } = document.data
  if (keys.length > keysMaxCount) return { ok: false, error: `has more than ${keysMaxCount} keys` }
  if (keys.some((key) => secretFields.some((field) => Object.hasOwn(key, field))))
    return { ok: false, error: 'has a private or symmetric key; it may have public keys alone' }
  // A set may have keys for other purposes.
  const usable = keys.flatMap((key) => {
    const parsed = SigningKey.safeParse(key)
    return parsed.success ? [parsed.data] : []
  })
  if (usable.length === 0) return { ok: false, error: `has no key that signs with ${algorithms.join(', ')}` }
  return { ok: true, value: { text, keyOf: createLocalJWKSet({ keys: usable }) } }
}
