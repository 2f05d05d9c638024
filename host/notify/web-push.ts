/**
 * Messages to browsers: encrypted for the subscription (RFC 8291, RFC 8188) and signed as of this service (VAPID, RFC 8292),
 * so that a push service can neither read nor invent them.
 */
import {
  createCipheriv,
  createECDH,
  createPrivateKey,
  type ECDH,
  hkdfSync,
  type KeyObject,
  randomBytes,
  sign,
} from 'node:crypto'

const curve = 'prime256v1'
const recordBytes = 4_096
/** Of a record, what padding and tag leave. */
const payloadMaxBytes = recordBytes - 17
const tokenLifeMs = 12 * 3_600_000

export interface PushKeys {
  /** Public key of the browser: 65 bytes in base64url. */
  readonly p256dh: string
  /** 16 bytes in base64url. */
  readonly auth: string
}

/** Who sends, for push services: the key that a subscription is bound to. */
export interface VapidIdentity {
  /** 65 bytes in base64url. */
  readonly publicKey: string
  readonly key: KeyObject
}

/** @param secret 32 bytes in base64url */
export function readVapidIdentity(secret: string): VapidIdentity {
  const ecdh = createECDH(curve)
  ecdh.setPrivateKey(Buffer.from(secret, 'base64url'))
  const point = ecdh.getPublicKey()
  const coordinate = (from: number) => point.subarray(from, from + 32).toString('base64url')
  const jwk = { kty: 'EC', crv: 'P-256', d: secret, x: coordinate(1), y: coordinate(33) }
  return { publicKey: point.toString('base64url'), key: createPrivateKey({ key: jwk, format: 'jwk' }) }
}

/** `Authorization` for a push service. @param subject an address of who operates the service @param now ms since 1970 */
export function vapidHeader(
  endpoint: string,
  { publicKey, key }: VapidIdentity,
  subject: string,
  now: number,
): string {
  const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
  const claims = {
    aud: new URL(endpoint).origin,
    exp: Math.floor((now + tokenLifeMs) / 1_000),
    sub: subject,
  }
  const signed = `${encode({ typ: 'JWT', alg: 'ES256' })}.${encode(claims)}`
  const signature = sign('sha256', Buffer.from(signed), { key, dsaEncoding: 'ieee-p1363' })
  return `vapid t=${signed}.${signature.toString('base64url')}, k=${publicKey}`
}

/**
 * A body with the content encoding `aes128gcm`, one record. @param fresh key pair and salt for this message alone
 * @throws {RangeError} for a longer payload, {@link Error} for keys that are none
 */
export function encryptPush(
  payload: Buffer,
  { p256dh, auth }: PushKeys,
  fresh: { readonly ecdh: ECDH; readonly salt: Buffer } = freshKeys(),
): Buffer {
  if (payload.length > payloadMaxBytes) throw new RangeError('the payload is too long')
  const theirs = Buffer.from(p256dh, 'base64url')
  const { ecdh, salt } = fresh
  const ours = ecdh.getPublicKey()
  const shared = ecdh.computeSecret(theirs)
  const info = Buffer.concat([Buffer.from('WebPush: info\0'), theirs, ours])
  const ikm = derive(shared, Buffer.from(auth, 'base64url'), info, 32)
  const key = derive(ikm, salt, Buffer.from('Content-Encoding: aes128gcm\0'), 16)
  const nonce = derive(ikm, salt, Buffer.from('Content-Encoding: nonce\0'), 12)
  const cipher = createCipheriv('aes-128-gcm', key, nonce)
  // 2: the last record.
  const encrypted = [cipher.update(payload), cipher.update(Buffer.from([2])), cipher.final()]
  const size = Buffer.alloc(4)
  size.writeUInt32BE(recordBytes)
  return Buffer.concat([...[salt, size, Buffer.from([ours.length]), ours], ...encrypted, cipher.getAuthTag()])
}

function freshKeys(): { ecdh: ECDH; salt: Buffer } {
  const ecdh = createECDH(curve)
  ecdh.generateKeys()
  return { ecdh, salt: randomBytes(16) }
}

function derive(key: Buffer, salt: Buffer, info: Buffer, length: number): Buffer {
  return Buffer.from(hkdfSync('sha256', key, salt, info, length))
}
