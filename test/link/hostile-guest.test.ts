// A guest that breaks every rule, speaking raw bytes to the real host link.
import type { Duplex } from 'node:stream'
import fc from 'fast-check'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { encodeFrame, encodePayload } from '#specs/node/frames.ts'
import { encodePreamble, PreambleHunter, sessionRequest } from '#specs/node/preamble.ts'
import { protocolSha256 } from '#specs/protocol/digest.ts'
import { taskCancel } from '#specs/protocol/methods.ts'
import { runId, task, until, wait } from '../../host/test/support/run-values.ts'
import { createWorld, type World } from './support.ts'

/** Answers preambles and `session/start`, records the host's other messages, and says what the test wants. */
class RawGuest {
  readonly port: Duplex
  readonly messages: {
    id?: unknown
    method?: string
    params?: { n?: number }
    error?: { code: number; message: string }
  }[] = []
  #bytes = Buffer.alloc(0)
  #hunter = new PreambleHunter()
  #inSession = false
  #sent = 0

  constructor(world: World, start: object = {}) {
    this.port = world.rpc.openGuest()
    world.http.openGuest().resume()
    this.port.on('data', (chunk: Buffer) => this.#take(chunk, start))
    this.port.write(encodePreamble(sessionRequest))
  }

  send(message: object): void {
    this.write((count) => encodeFrame({ jsonrpc: '2.0', ...message }, count))
  }

  /** @param frame gets the number of frames before it */
  write(frame: (count: number) => Buffer): void {
    this.port.write(frame(this.#sent++))
  }

  #take(chunk: Buffer, start: object): void {
    if (this.#inSession && chunk.includes(0xff)) {
      this.#inSession = false
      this.#bytes = Buffer.alloc(0)
    }
    if (!this.#inSession) {
      const found = this.#hunter.push(chunk)
      if (found === null) return
      this.#inSession = true
      this.#sent = 0
      this.port.write(encodePreamble(found.session))
      if (found.rest.length > 0) this.#take(found.rest, start)
      return
    }
    this.#bytes = Buffer.concat([this.#bytes, chunk])
    while (this.#bytes.length >= 8 && this.#bytes.length >= 8 + this.#bytes.readUInt32BE(0)) {
      const length = this.#bytes.readUInt32BE(0)
      const message = JSON.parse(this.#bytes.toString('utf8', 8, 8 + length)) as {
        id?: number
        method?: string
      }
      this.#bytes = this.#bytes.subarray(8 + length)
      this.messages.push(message)
      if (message.method === 'session/start')
        this.send({ id: message.id, result: { ...goodStart, ...start } })
      if (message.method === 'task/submit') this.send({ id: message.id, result: {} })
    }
  }
}

const goodStart = { protocolSha256, processId: 'ab'.repeat(16), restarts: 0, tools: [] }
const emit = (events: unknown) => ({ method: 'event/emit', params: { runId, events } })
const note = { type: 'note', level: 'info', text: 'x' }
const event = (n: number, what: unknown = note) => ({ n, agentPath: 'root', event: what })

async function withRun(): Promise<{ world: World; guest: RawGuest }> {
  const world = createWorld({ timings: { heartbeatIntervalMs: 60_000 } })
  const guest = new RawGuest(world)
  expect((await world.link.submitTask(task, { timeoutMs: 5_000 })).ok).toBe(true)
  return { world, guest }
}

type FrameOf = (count: number) => Buffer
const raw = (payload: Buffer | string): FrameOf => {
  return (count) => encodePayload(Buffer.from(payload as string), count)
}
const tooLong = Buffer.from([0, 0x20, 0, 0])

describe('the host ends the session, with the reason, when the guest sends', () => {
  const runEnd = {
    type: 'run-end',
    outcome: 'completed',
    reason: 'completed',
    message: '',
    summary: '',
    usage: { requests: 0, inputTokens: 0, outputTokens: 0, reasoningTokens: 0 },
    durationMs: 0,
  }
  const decision = {
    type: 'approval-decision',
    approvalId: 'a',
    decision: 'allow',
    scope: 'once',
    by: 'person',
  }
  const frames: [string, string, FrameOf][] = [
    ['a frame that is too long', 'too_long', () => tooLong],
    ['a frame that nests too deep', 'too_deep', raw('['.repeat(200))],
    ['bytes that are not UTF-8', 'bad_utf8', raw(Buffer.from([0xc3, 0x28]))],
    ['a frame that is not JSON', 'bad_json', raw('abc')],
    ['a prototype key', 'forbidden_key', raw('{"__proto__":{}}')],
    ['a batch', 'bad_message', raw('[]')],
    ['a message without a version', 'bad_message', raw('{"id":1}')],
    ['a frame for the second time', 'bad_check', (count) => encodePayload(Buffer.from('{}'), count - 1)],
    [
      'a cancellation of nothing',
      'bad_message',
      (count) => encodeFrame({ jsonrpc: '2.0', method: '$/cancelRequest' }, count),
    ],
  ]
  const messages: [string, string, object][] = [
    ['an unknown notification', 'violation', { method: 'no/such', params: {} }],
    ['a notification of the host', 'violation', { method: 'event/ack', params: { runId, n: 1 } }],
    ['the end of the run', 'violation', emit([event(1, runEnd)])],
    ['a decision on an approval', 'violation', emit([event(1, decision)])],
    ['a field that is not known', 'violation', emit([{ ...event(1), more: 1 }])],
    ['a gap in its events', 'violation', emit([event(2)])],
    [
      'events of another run',
      'violation',
      { method: 'event/emit', params: { runId: `run-${'f'.repeat(20)}`, events: [event(1)] } },
    ],
    [
      'an endless list of events',
      'violation',
      emit(Array.from({ length: 65 }, (_, index) => event(index + 1))),
    ],
  ]
  const all = [
    ...frames,
    ...messages.map(([name, reason, message]): [string, string, FrameOf] => [
      name,
      reason,
      (count) => encodeFrame({ jsonrpc: '2.0', ...message }, count),
    ]),
  ]

  it.each(all)('%s [S0.07, C.02]', async (_name, reason, frame) => {
    const { world, guest } = await withRun()
    await using _world = world
    guest.write(frame)
    await until(() => world.seen.ends.length === 1, 'the end of the session')
    expect(world.seen.ends[0]?.reason).toBe(reason)
    expect(world.seen.events).toEqual([])
    await until(() => world.seen.sessions.length === 2, 'the next session')
    expect(world.seen.bugs).toEqual([])
  })

  it('more messages than the rate allows [C.02]', async () => {
    // The rate has no time to pass, so that a slow machine exceeds it too.
    vi.useFakeTimers({ toFake: ['performance'] })
    onTestFinished(() => void vi.useRealTimers())
    const { world, guest } = await withRun()
    await using _world = world
    const params = { level: 'info', message: 'm', fields: '{}' }
    const flood = setInterval(() => {
      if (guest.port.writableLength > 4_000_000) return
      for (let turn = 0; turn < 5_000; turn++) guest.send({ method: 'log/write', params })
    }, 1)
    await until(() => world.seen.ends.length > 0, 'the end of the session')
    clearInterval(flood)
    expect(world.seen.ends[0]?.reason).toBe('flood')
  })

  it('requests without end while it reads no answers [C.02]', async () => {
    const { world, guest } = await withRun()
    await using _world = world
    guest.port.pause()
    guest.port.removeAllListeners('data')
    for (let id = 0; id < 8_000; id++) guest.send({ id, method: 'no/such', params: { text: 'x' } })
    await until(() => world.seen.ends.length > 0 || guest.port.writableLength === 0, 'the end or the silence')
    expect(world.seen.bugs).toEqual([])
  })
})

describe('the host answers with a JSON-RPC error, and the session continues, when the guest', () => {
  it.each([
    ['asks an unknown method', { method: 'no/such', params: {} }, -32601],
    ['asks without params', { method: 'task/complete' }, -32602],
    ['asks with params that break the schema', { method: 'task/complete', params: { runId: 7 } }, -32602],
    ['asks what only the host may ask', { method: 'task/submit', params: { task } }, -32001],
    ['notifies by a request', { method: 'event/emit', params: {} }, -32601],
    [
      'completes a run that is not under way',
      { method: 'task/complete', params: completed(`run-${'e'.repeat(20)}`) },
      -32003,
    ],
  ])('%s [S0.07, C.02]', async (_name, message, code) => {
    const { world, guest } = await withRun()
    await using _world = world
    guest.send({ id: 'q', ...message })
    await until(() => guest.messages.some((answer) => answer.id === 'q'), 'the answer')
    const answer = guest.messages.find(({ id }) => id === 'q')
    expect(answer?.error?.code).toBe(code)
    expect(answer?.error?.message).not.toMatch(/\bat \/|node_modules|Error:/)
    expect(world.seen.ends).toEqual([])
  })

  it('answers what was not asked, doubles its events, or asks and withdraws [C.02, R.02]', async () => {
    const { world, guest } = await withRun()
    await using _world = world
    guest.send({ id: 99_999, result: { any: 'thing' } })
    guest.send({ id: 88_888, error: { code: 1, message: 'x' } })
    guest.send({ method: '$/cancelRequest', params: { id: 'never' } })
    guest.send(emit([event(1)]))
    guest.send(emit([event(1), event(2)]))
    guest.send(emit([event(2)]))
    await until(() => world.seen.numbers.length >= 2, 'the events')
    await wait(20)
    expect(world.seen.numbers).toEqual([1, 2])
    expect(world.seen.ends).toEqual([])
  })
})

describe('a guest that says what cannot be', () => {
  it('ends its session once: what it said before is kept, what it says after is acknowledged and not believed, and it can still be cancelled [S0.07, C.02]', async () => {
    const broken: string[] = []
    const looked: number[] = []
    await using world = createWorld({
      timings: { heartbeatIntervalMs: 60_000 },
      onBrokenClaim: ({ message }) => broken.push(message),
      handlers: {
        checkEvent: ({ n, event }) => {
          looked.push(n)
          return event.type === 'plan-update' ? 'a plan of its own' : null
        },
      },
    })
    const guest = new RawGuest(world)
    expect((await world.link.submitTask(task, { timeoutMs: 5_000 })).ok).toBe(true)
    const plan = { goal: 'g', steps: [{ id: 'a', title: 'a', instructions: 'do' }] }
    const claim = { type: 'plan-update', revision: 7, plan }
    guest.send(emit([event(1), event(2, claim), event(3)]))
    await until(() => world.seen.sessions.length === 2, 'the next session')
    expect(world.seen.ends).toEqual([{ reason: 'violation', message: 'the guest sent a plan of its own' }])
    expect(broken).toEqual(['the guest sent a plan of its own'])
    guest.send(emit([event(2, claim), event(3), event(4, claim)]))
    guest.send({ id: 'q', method: 'approval/request', params: question })
    await until(() => guest.messages.some(({ id }) => id === 'q'), 'the answer')
    await until(() => guest.messages.some(hasAcknowledged(4)), 'the acknowledgement')
    expect(world.seen.numbers).toEqual([1])
    expect(looked).toEqual([1, 2])
    expect(world.seen.approvals).toEqual([])
    expect(world.seen.ends).toHaveLength(1)
    const cancelled = world.link.request(taskCancel, { runId, reason: 'r' }, { timeoutMs: 5_000 })
    await until(() => guest.messages.some(({ method }) => method === 'task/cancel'), 'the cancel')
    world.link.close()
    await cancelled
  })
})

const question = {
  approvalId: 'a1',
  runId,
  agentPath: 'root',
  stepId: 's',
  callId: 'c',
  tool: 'delete_file',
  arguments: '{}',
  preview: '',
}

function hasAcknowledged(n: number) {
  return (message: { method?: string; params?: { n?: number } }) =>
    message.method === 'event/ack' && message.params?.n === n
}

describe('the host ends the link when the guest', () => {
  it('has another protocol, and says to rebuild the image [C.05]', async () => {
    await using world = createWorld()
    new RawGuest(world, { protocolSha256: '0'.repeat(64) })
    expect(await world.link.closed).toMatchObject({
      reason: 'protocol_mismatch',
      message: expect.stringContaining('caisson image build') as unknown,
    })
  })

  it('asks for sessions without end and takes none [C.02]', async () => {
    await using world = createWorld({ timings: { flapMaxCount: 5, firstSessionTimeoutMs: 400 } })
    const port = world.rpc.openGuest()
    let offered = 0
    port.on('data', (chunk: Buffer) => {
      offered += chunk.length
    })
    let asked = 0
    const knocking = setInterval(() => {
      for (let burst = 0; burst < 20; burst++) port.write(encodePreamble(sessionRequest))
      asked += 20
    }, 1)
    expect(await world.link.closed).toMatchObject({ reason: 'silent' })
    clearInterval(knocking)
    expect(offered / encodePreamble(sessionRequest).length).toBeLessThan(asked / 10)
  })

  it('breaks every session that it is given [C.02]', async () => {
    await using world = createWorld({ timings: { flapMaxCount: 5 } })
    new RawGuest(world, { processId: 'not hex' })
    expect(await world.link.closed).toMatchObject({ reason: 'flapping' })
    expect(world.seen.sessions).toEqual([])
  })
})

describe('any bytes at any moment', () => {
  it('neither crash the host nor leave a request pending [C.02]', { timeout: 60_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.uint8Array({ maxLength: 200 }), { maxLength: 12 }), async (chunks) => {
        const { world, guest } = await withRun()
        for (const chunk of chunks) guest.port.write(Buffer.from(chunk))
        await wait(2)
        world.link.close()
        expect(await world.link.ready()).toMatchObject({ ok: false, error: { code: 'closed' } })
        expect(world.seen.bugs).toEqual([])
        expect(world.seen.events).toEqual([])
      }),
      { seed: 6, numRuns: 60 },
    )
  })
})

function completed(id: string): object {
  const usage = { requests: 0, inputTokens: 0, outputTokens: 0, reasoningTokens: 0 }
  return { runId: id, outcome: 'completed', reason: 'completed', message: '', summary: '', usage }
}
