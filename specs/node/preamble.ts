/**
 * The preamble that begins a session on a port: four 0xFF, `CAISSON1`, 16 bytes of session. With a session of zeros
 * it is a sessionRequest: the guest asks the host to begin one. Owns only the bytes; who may begin what is decided elsewhere.
 */

/** 32 lower-case hex digits. */
export type SessionId = string

const magic = Buffer.concat([Buffer.alloc(4, 0xff), Buffer.from('CAISSON1', 'latin1')])
const sessionBytes = 16
/** Bytes of a preamble. */
export const preambleBytes = magic.length + sessionBytes
/** The session of a sessionRequest. */
export const sessionRequest: SessionId = '0'.repeat(sessionBytes * 2)

/** The bytes that begin `session`. Throws a RangeError when it is not 32 hex digits. */
export function encodePreamble(session: SessionId): Buffer {
  if (!/^[0-9a-f]{32}$/.test(session)) throw new RangeError('expected a session of 32 hex digits')
  return Buffer.concat([magic, Buffer.from(session, 'hex')])
}

export interface FoundPreamble {
  session: SessionId
  /** What came after it. */
  rest: Buffer
  /** What to search instead when it is not the one expected: a torn preamble reaches into the whole one after it. */
  again: Buffer
}

/** Looks for the next preamble and forgets all that comes before it; keeps fewer bytes than a preamble has. */
export class PreambleHunter {
  #carry: Buffer = Buffer.alloc(0)

  /** The next preamble in what was pushed so far, or null. The bytes after it are the caller's. */
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
