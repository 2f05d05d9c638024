import { Duplex } from 'node:stream'
import { type ConnectionOptions, connect } from 'node:tls'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { helloMaxWireBytes, readClientHello } from '../../egress/client-hello.ts'
import { disagreement } from '../../egress/tunnel.ts'

/** What Node's TLS really sends first. */
async function realHello(options: ConnectionOptions): Promise<Buffer> {
  const sent = Promise.withResolvers<Buffer>()
  const wire = new Duplex({
    read() {},
    write(chunk: Buffer, _encoding, done) {
      sent.resolve(chunk)
      done()
    },
  })
  const socket = connect({ socket: wire, ...options })
  socket.on('error', () => {})
  const bytes = await sent.promise
  socket.destroy()
  return bytes
}

const hello = await realHello({ servername: 'packages.test' })

function extension(type: number, content: Buffer): Buffer {
  const head = Buffer.alloc(4)
  head.writeUInt16BE(type)
  head.writeUInt16BE(content.length, 2)
  return Buffer.concat([head, content])
}

function nameExtension(name: string): Buffer {
  const bytes = Buffer.from(name, 'latin1')
  const content = Buffer.alloc(5)
  content.writeUInt16BE(bytes.length + 3)
  content.writeUInt16BE(bytes.length, 3)
  return extension(0, Buffer.concat([content, bytes]))
}

/** A ClientHello of our own with these extensions; null: none at all, as before TLS 1.2. */
function craft(extensions: Buffer | null): Buffer {
  const length = Buffer.alloc(2)
  length.writeUInt16BE(extensions?.length ?? 0)
  const body = Buffer.concat([
    Buffer.from([3, 3]),
    Buffer.alloc(32, 7),
    Buffer.from([0, 0, 2, 0x13, 1, 1, 0]),
    ...(extensions === null ? [] : [length, extensions]),
  ])
  const head = Buffer.from([1, 0, 0, 0])
  head.writeUIntBE(body.length, 1, 3)
  return Buffer.concat([head, body])
}

function inRecords(message: Buffer, size = 16_384): Buffer {
  const records: Buffer[] = []
  for (let at = 0; at < message.length; at += size) {
    const content = message.subarray(at, at + size)
    const head = Buffer.from([0x16, 3, 1, 0, 0])
    head.writeUInt16BE(content.length, 3)
    records.push(head, content)
  }
  return Buffer.concat(records)
}

const named = (name: string): Buffer => inRecords(craft(nameExtension(name)))

describe('the first bytes of a tunnel', () => {
  it('tell the name in the ClientHello of a real client, with TLS 1.2 and 1.3 [G.02]', async () => {
    expect(readClientHello(hello)).toEqual({ kind: 'hello', serverName: 'packages.test' })
    const old = await realHello({ servername: 'packages.test', maxVersion: 'TLSv1.2' })
    expect(readClientHello(old)).toEqual({ kind: 'hello', serverName: 'packages.test' })
    expect(readClientHello(await realHello({}))).toEqual({ kind: 'hello', serverName: null })
  })

  it('are asked for until the hello is whole, wherever it is cut [G.02]', () => {
    for (let cut = 0; cut < hello.length; cut += 1)
      expect(readClientHello(hello.subarray(0, cut)).kind).toBe('more')
    expect(readClientHello(Buffer.concat([hello, Buffer.from('anything')]))).toMatchObject({
      serverName: 'packages.test',
    })
  })

  it('are understood when the hello is spread over several records [G.02]', () => {
    const message = craft(nameExtension('packages.test'))
    for (const size of [2, 5, 40]) {
      expect(readClientHello(inRecords(message, size))).toMatchObject({ serverName: 'packages.test' })
    }
    expect(readClientHello(inRecords(message, 1))).toMatchObject({ kind: 'refused' })
  })

  it.each([
    ['HTTP', Buffer.from('GET / HTTP/1.1\r\n')],
    ['SSH', Buffer.from('S')],
    ['an alert', Buffer.from([0x15, 3, 1, 0, 2, 2, 112])],
    ['a version that is none', Buffer.from([0x16, 9, 9, 0, 4, 1, 0, 0, 0])],
    ['an empty record', Buffer.from([0x16, 3, 1, 0, 0])],
    ['another handshake message', inRecords(Buffer.from([2, 0, 0, 0]))],
    ['a hello without end', inRecords(Buffer.from([1, 0xff, 0xff, 0xff]))],
    ['a hello that turns into something else', Buffer.concat([hello.subarray(0, 5), Buffer.alloc(600)])],
    [
      'a record of another kind inside the hello',
      Buffer.concat([inRecords(Buffer.from([1, 0, 0, 90, 3, 3])), Buffer.from([0x17])]),
    ],
    ['two server names', inRecords(craft(Buffer.concat([nameExtension('a.test'), nameExtension('b.test')])))],
    ['a name with a NUL', named('a.test\0.evil.test')],
    ['an empty name', named('')],
    [
      'bytes behind the extensions',
      inRecords(Buffer.concat([craft(nameExtension('a.test')).fill(0xff, 1, 2)])),
    ],
  ])('are refused where they are %s [G.02]', (_what, bytes) => {
    expect(readClientHello(bytes).kind).toBe('refused')
  })

  it('are never read beyond the bound, whatever they are [G.02]', () => {
    const anything = fc.oneof(
      fc.uint8Array({ maxLength: 600 }).map((bytes) => Buffer.from(bytes)),
      fc.tuple(fc.nat(hello.length - 1), fc.nat(255), fc.nat(hello.length)).map(([at, byte, cut]) => {
        const changed = Buffer.from(hello)
        changed[at] = byte
        return changed.subarray(0, cut)
      }),
      fc.tuple(fc.uint8Array({ maxLength: 300 }), fc.integer({ min: 4, max: 400 })).map(([bytes, size]) => {
        const message = craft(Buffer.from(bytes))
        return inRecords(message, size)
      }),
    )
    fc.assert(
      fc.property(anything, (bytes) => {
        const reading = readClientHello(bytes)
        if (reading.kind === 'hello') expect(reading.serverName).not.toBe('')
      }),
      { seed: 4, numRuns: 5_000 },
    )
    const endless = Buffer.alloc(helloMaxWireBytes + 1, inRecords(Buffer.alloc(16_384, 1)))
    expect(readClientHello(endless).kind).toBe('refused')
  })

  it('must name the host of the tunnel, or nothing where that is an address [G.02]', () => {
    const read = (bytes: Buffer) => readClientHello(bytes) as Parameters<typeof disagreement>[0]
    expect(disagreement(read(named('A.Test.')), 'a.test')).toBe(null)
    expect(disagreement(read(named('b.test')), 'a.test')).toContain('its TLS asks for b.test')
    expect(disagreement(read(inRecords(craft(null))), 'a.test')).toContain('names no server')
    expect(disagreement(read(inRecords(craft(null))), '192.0.2.1')).toBe(null)
    expect(disagreement(read(named('b.test')), '192.0.2.1')).toContain('b.test')
  })
})
