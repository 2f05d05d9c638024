/**
 * The preamble that begins a session on a port: four 0xFF, `CAISSON1`, 16 bytes of session id. A zero id is a session
 * request: the guest asks the host to begin one. Defines only the bytes, not who may begin a session.
 */

/** 32 lower-case hex digits. */
export type SessionId = string

const magic = Buffer.concat([Buffer.alloc(4, 0xff), Buffer.from('CAISSON1', 'latin1')])
const sessionBytes = 16
/** Bytes of a preamble. */
export const preambleBytes = magic.length + sessionBytes
/** The session id of a session request. */
export const sessionRequest: SessionId = '0'.repeat(sessionBytes * 2)

/** The bytes that begin `session`. Throws a RangeError when it is not 32 hex digits. */
export function encodePreamble(session: SessionId): Buffer {
  if (!/^[0-9a-f]{32}$/.test(session)) throw new RangeError('expected a session of 32 hex digits')
  return Buffer.concat([magic, Buffer.from(session, 'hex')])
}

export interface FoundPreamble {
  session: SessionId
  /** Bytes after it. */
  rest: Buffer
  /** What to search instead if it is not the expected one: a torn preamble may overlap the next complete one. */
  again: Buffer
}

/** Searches for the next preamble and discards everything before it; keeps fewer bytes than a preamble has. */
export class PreambleHunter {
  #carry: Buffer = Buffer.alloc(0)

  /** The next preamble in the bytes so far, or null. The caller owns the bytes after it. */
  push(chunk: Buffer): FoundPreamble | null {
    const bytes = this.#carry.length === 0 ? chunk : Buffer.concat([this.#carry, chunk])
    const at = bytes.indexOf(magic)
    if (at !== -1 && bytes.length - at >= preambleBytes) {
      this.#carry = Buffer.alloc(0)
      const session = bytes.toString('hex', at + magic.length, at + preambleBytes)
      return { session, rest: bytes.subarray(at + preambleBytes), again: bytes.subarray(at + magic.length) }
    }
    const keepFrom = at === -1 ? Math.max(0, bytes.length - magic.length + 1) : at
    this.#carry = Buffer.from(bytes.subarray(keepFrom))
    return null
  }
}
