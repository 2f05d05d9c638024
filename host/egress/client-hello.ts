/**
 * Reads the server name from the first bytes of a connection: a TLS ClientHello (RFC 8446 §4.1.2, RFC 6066 §3). Bounded
 * and stateless; accepts only TLS.
 */

type HelloReading =
  /** A complete ClientHello. `serverName` is in lower case without a trailing dot; null if absent. */
  | { readonly kind: 'hello'; readonly serverName: string | null }
  | { readonly kind: 'more' }
  /** `seen` completes "expected a TLS ClientHello, saw …". */
  | { readonly kind: 'refused'; readonly seen: string }

/** Maximum length of a handshake message; typical ones are below 2 KiB. */
const helloMaxBytes = 16 * 1024
const recordMaxBytes = 16 * 1024
const recordHeaderBytes = 5
/** Maximum records per hello; each adds a header. */
const maxRecords = 64
/** Maximum bytes read before the result is final. */
export const helloMaxWireBytes = helloMaxBytes + maxRecords * recordHeaderBytes + recordMaxBytes

const handshakeRecord = 0x16
const clientHelloMessage = 1
const serverNameExtension = 0
const hostNameType = 0

/** @param bytes all bytes of the connection so far */
export function readClientHello(bytes: Buffer): HelloReading {
  const joined = joinRecords(bytes)
  if (!Buffer.isBuffer(joined)) return joined
  const length = helloLength(joined)
  if (joined.length < 4) return { kind: 'more' }
  if (joined[0] !== clientHelloMessage) return refused(`a handshake message of type ${joined[0]}`)
  if (length > helloMaxBytes) return refused(`one of ${length} bytes, more than ${helloMaxBytes}`)
  if (joined.length < 4 + length) return { kind: 'more' }
  return readHello(new Cursor(joined.subarray(4, 4 + length)))
}

/** Content of the received handshake records, at least until the hello is complete. */
function joinRecords(bytes: Buffer): Buffer | HelloReading {
  let joined: Buffer = Buffer.alloc(0)
  let at = 0
  for (let count = 0; at < bytes.length; count += 1) {
    if (joined.length >= 4 && joined.length >= 4 + Math.min(helloLength(joined), helloMaxBytes)) break
    // The first byte is enough to reject other protocols; the guest need not send five.
    if (bytes[at] !== handshakeRecord)
      return refused(count === 0 ? 'something that is not TLS' : 'a broken record')
    if (bytes.length - at < recordHeaderBytes) break
    const length = bytes.readUInt16BE(at + 3)
    if (bytes[at + 1] !== 3 || (bytes[at + 2] ?? 255) > 4 || length === 0 || length > recordMaxBytes)
      return refused('a broken record')
    if (count === maxRecords) return refused(`one in more than ${maxRecords} pieces`)
    const content = bytes.subarray(at + recordHeaderBytes, at + recordHeaderBytes + length)
    joined = joined.length === 0 ? content : Buffer.concat([joined, content])
    at += recordHeaderBytes + length
  }
  return joined
}

/** Length in the header of the handshake message; 0 while the header is incomplete. */
function helloLength(message: Buffer): number {
  return message.length < 4 ? 0 : message.readUIntBE(1, 3)
}

function readHello(hello: Cursor): HelloReading {
  // Skips version, random, session, cipher suites and compression methods.
  hello.skip(2 + 32)
  hello.skip(hello.uint8())
  hello.skip(hello.uint16())
  hello.skip(hello.uint8())
  if (hello.broken) return refused('a broken one')
  // TLS 1.2 without extensions.
  if (hello.left === 0) return { kind: 'hello', serverName: null }
  const extensions = hello.take(hello.uint16())
  if (extensions.broken || hello.left > 0) return refused('a broken one')
  let serverName: string | null = null
  while (extensions.left > 0) {
    const type = extensions.uint16()
    const content = extensions.take(extensions.uint16())
    if (extensions.broken) return refused('a broken one')
    if (type !== serverNameExtension) continue
    // With two names, the host and the server could each use a different one.
    if (serverName !== null) return refused('one with two server names')
    serverName = readServerName(content)
    if (serverName === null) return refused('one with a broken server name')
  }
  return { kind: 'hello', serverName }
}

function readServerName(content: Cursor): string | null {
  const list = content.take(content.uint16())
  const type = list.uint8()
  const name = list.take(list.uint16())
  if (content.broken || content.left > 0 || list.broken || list.left > 0 || type !== hostNameType) return null
  const text = name.text()
  if (!/^[\x21-\x7e]{1,255}$/.test(text)) return null
  return text.toLowerCase().replace(/\.$/, '')
}

function refused(seen: string): HelloReading {
  return { kind: 'refused', seen }
}

/** Reads forward. Past the end it sets `broken` and returns zeros. */
class Cursor {
  broken = false
  #bytes: Buffer

  constructor(bytes: Buffer) {
    this.#bytes = bytes
  }

  get left(): number {
    return this.#bytes.length
  }
  uint8(): number {
    return this.take(1).#bytes[0] ?? 0
  }
  uint16(): number {
    const two = this.take(2)
    return two.broken ? 0 : two.#bytes.readUInt16BE(0)
  }
  skip(count: number): void {
    this.take(count)
  }
  take(count: number): Cursor {
    const taken = new Cursor(this.#bytes.subarray(0, count))
    if (count > this.#bytes.length) {
      this.broken = true
      taken.broken = true
    }
    this.#bytes = this.#bytes.subarray(count)
    return taken
  }
  text(): string {
    return this.#bytes.toString('latin1')
  }
}
