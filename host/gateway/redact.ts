/**
 * Removes a key from what an upstream sends back, in text and in a stream whose chunks may cut the key anywhere.
 * It knows the key as sent; an upstream that encodes it another way is not caught.
 */

export const redactedMark = '[redacted]'

/** `text` without `key`; unchanged when there is none. */
export function redactText(text: string, key: string | null): string {
  return key === null ? text : text.replaceAll(key, redactedMark)
}

/** A filter for one stream; bytes that could be the beginning of the key are held until the next chunk. */
export interface StreamRedactor {
  push(chunk: Uint8Array): Buffer
  /** What was held at the end. */
  end(): Buffer
}

/** @param key null passes all bytes through */
export function createStreamRedactor(key: string | null): StreamRedactor {
  if (key === null) {
    return { push: (chunk) => asBuffer(chunk), end: () => Buffer.alloc(0) }
  }
  const needle = Buffer.from(key)
  const mark = Buffer.from(redactedMark)
  let held: Buffer = Buffer.alloc(0)
  return {
    push(chunk) {
      let rest = held.length === 0 ? asBuffer(chunk) : Buffer.concat([held, chunk])
      const out: Buffer[] = []
      for (let at = rest.indexOf(needle); at >= 0; at = rest.indexOf(needle)) {
        out.push(rest.subarray(0, at), mark)
        rest = rest.subarray(at + needle.length)
      }
      const keep = longestPrefixAtEnd(rest, needle)
      held = Buffer.from(rest.subarray(rest.length - keep))
      out.push(rest.subarray(0, rest.length - keep))
      return out.length === 1 ? (out[0] ?? Buffer.alloc(0)) : Buffer.concat(out)
    },
    end() {
      const last = held
      held = Buffer.alloc(0)
      return last
    },
  }
}

function asBuffer(chunk: Uint8Array): Buffer {
  return Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength)
}

/** Length of the longest proper prefix of `needle` that `bytes` ends with. */
function longestPrefixAtEnd(bytes: Buffer, needle: Buffer): number {
  for (let length = Math.min(bytes.length, needle.length - 1); length > 0; length -= 1) {
    if (bytes.subarray(bytes.length - length).equals(needle.subarray(0, length))) return length
  }
  return 0
}
