import { once } from 'node:events'
import { type Duplex, duplexPair } from 'node:stream'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Qmp, QmpError, type QmpEvent } from '../../../vm/qemu/qmp.ts'

const GREETING =
  '{"QMP":{"version":{"qemu":{"micro":22,"minor":2,"major":7},"package":"x"},"capabilities":[]}}\n'

interface Command {
  readonly execute: string
  readonly id: number
}

/** A peer that greets, accepts the negotiation and hands every other command to `answer`. */
function startPeer(answer: (command: Command, peer: Duplex) => void): Duplex {
  const [host, peer] = duplexPair()
  let text = ''
  peer.on('data', (chunk: Buffer) => {
    text += chunk.toString()
    for (let end = text.indexOf('\n'); end !== -1; end = text.indexOf('\n')) {
      const command = JSON.parse(text.slice(0, end)) as Command
      text = text.slice(end + 1)
      if (command.execute === 'qmp_capabilities') peer.write(`{"return":{},"id":${command.id}}\n`)
      else answer(command, peer)
    }
  })
  peer.on('error', () => {})
  peer.write(GREETING)
  return host
}

/** The error a promise is rejected with. */
async function failureOf(promise: Promise<unknown>): Promise<QmpError> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  )
  expect(error).toBeInstanceOf(QmpError)
  return error as QmpError
}

describe('Qmp', () => {
  it('negotiates, and gives every command its own answer whatever their order', async () => {
    const waiting: Command[] = []
    const host = startPeer((command, peer) => {
      waiting.push(command)
      if (waiting.length < 3) return
      for (const { id, execute } of waiting.reverse()) peer.write(`{"return":"${execute}","id":${id}}\n`)
    })
    const qmp = await Qmp.connect(host)
    expect(qmp.version).toBe('7.2.22')
    expect(await Promise.all(['a', 'b', 'c'].map((name) => qmp.execute(name)))).toEqual(['a', 'b', 'c'])
  })

  it('tells a refusal with the words of QEMU', async () => {
    const host = startPeer(({ id }, peer) =>
      peer.write(`{"error":{"class":"GenericError","desc":"no such thing"},"id":${id}}\n`),
    )
    const error = await failureOf((await Qmp.connect(host)).execute('device_add'))
    expect(error.kind).toBe('refused')
    expect(error.message).toContain('device_add: GenericError: no such thing')
  })

  it('passes events on until the listener is taken away', async () => {
    const host = startPeer(({ id }, peer) => {
      peer.write('{"timestamp":{"seconds":1},"event":"STOP"}\n')
      peer.write('{"event":"SHUTDOWN","data":{"reason":"guest-panic"}}\n')
      peer.write(`{"return":{},"id":${id}}\n`)
    })
    const qmp = await Qmp.connect(host)
    const events: QmpEvent[] = []
    const end = qmp.onEvent((event) => events.push(event))
    await qmp.execute('stop')
    end()
    await qmp.execute('stop')
    expect(events).toEqual([
      { name: 'STOP', data: {} },
      { name: 'SHUTDOWN', data: { reason: 'guest-panic' } },
    ])
  })

  it('rejects what is pending and what comes later when the stream ends', async () => {
    const host = startPeer((_, peer) => peer.destroy())
    const qmp = await Qmp.connect(host)
    const pending = [qmp.execute('a'), qmp.execute('b')]
    for (const promise of pending) expect((await failureOf(promise)).kind).toBe('closed')
    expect((await failureOf(qmp.execute('c'))).kind).toBe('closed')
  })

  it('gives up a command that gets no answer, and drops the answer that comes too late', async () => {
    const late: number[] = []
    const host = startPeer(({ execute, id }, peer) => {
      if (execute === 'slow') late.push(id)
      else for (const each of [...late, id]) peer.write(`{"return":"late","id":${each}}\n`)
    })
    const qmp = await Qmp.connect(host)
    expect((await failureOf(qmp.execute('slow', undefined, 20))).kind).toBe('timeout')
    expect(await qmp.execute('quick')).toBe('late')
  })

  it('gives up a peer that says nothing at all', async () => {
    const [host] = duplexPair()
    expect((await failureOf(Qmp.connect(host, 20))).kind).toBe('timeout')
  })

  it('closes a stream whose line never ends instead of buffering it', async () => {
    const host = startPeer((_, peer) => {
      for (let count = 0; count < 40; count++) peer.write(Buffer.alloc(64 * 1024, 'x'))
    })
    const qmp = await Qmp.connect(host)
    expect((await failureOf(qmp.execute('a'))).kind).toBe('protocol')
    expect(host.destroyed).toBe(true)
  })

  it('answers any bytes with a connection or an error, never with a hang or a crash', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(hostileChunk, { maxLength: 8 }), async (chunks) => {
        const [host, peer] = duplexPair()
        peer.on('error', () => {})
        for (const chunk of chunks) peer.write(chunk)
        peer.end()
        await failureOf(Qmp.connect(host, 1000))
        if (!host.closed) await once(host, 'close')
      }),
      { seed: 11, numRuns: 150 },
    )
  })
})

const hostileChunk = fc.oneof(
  fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)),
  fc.json({ maxDepth: 3 }).map((text) => `${text}\n`),
  fc.constantFrom(
    GREETING,
    GREETING.slice(0, 40),
    '\n',
    '{"id":1}\n',
    '{"error":{},"id":1}\n',
    '{"event":3}\n',
  ),
)
