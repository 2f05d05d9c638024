// The time of a call: what stretches it, what does not, and when it stands. Time here is the test's own.
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { CallClock } from '../../mcp/call-clock.ts'
import { LinkedServer } from './support/linked-server.ts'

const minute = 60_000
const never = new AbortController().signal

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }))
afterEach(() => void vi.useRealTimers())

const passes = (ms: number) => vi.advanceTimersByTimeAsync(ms)

function start(silentMs: number, totalMs: number) {
  const over: string[] = []
  return { over, clock: new CallClock({ silentMs, totalMs, onOver: (words) => over.push(words) }) }
}

describe('the clock of a call', () => {
  it('is over after silence, and after all of its time however much is said [S2.12]', async () => {
    const silent = start(100, 1_000)
    await passes(99)
    expect(silent.over).toEqual([])
    await passes(1)
    expect(silent.over).toEqual(['no answer within 100 ms'])
    const talking = start(100, 250)
    for (let word = 0; word < 4; word++) {
      await passes(60)
      talking.clock.extend()
    }
    expect(talking.over).toEqual([])
    await passes(60)
    expect(talking.over).toEqual(['it took more than 250 ms'])
  })

  it('stands while it is held, by anyone, and continues with what was left [S2.12]', async () => {
    const { clock, over } = start(100, 1_000)
    await passes(60)
    const [one, other] = [clock.hold(), clock.hold()]
    await passes(minute)
    one()
    one()
    await passes(minute)
    other()
    await passes(39)
    expect(over).toEqual([])
    await passes(1)
    expect(over).toHaveLength(1)
  })

  it('says nothing once the call has ended, held or not [S2.12]', async () => {
    const { clock, over } = start(100, 1_000)
    const release = clock.hold()
    clock[Symbol.dispose]()
    release()
    clock.extend()
    await passes(minute)
    expect(over).toEqual([])
  })
})

describe('a call', () => {
  it('continues for as long as its server says that it gets on, up to ten minutes [S2.12] [A.09]', async () => {
    await using server = new LinkedServer(minute)
    await server.start()
    const call = server.connection.callTool('work', {}, never)
    await server.called()
    for (let told = 1; told <= 9; told++) {
      await passes(50_000)
      await server.progress(told)
    }
    await server.answer('done')
    expect(await call).toEqual({ ok: true, content: 'done' })
  })

  it('is given up in silence, and after ten minutes of words, and its server is notified [S2.12] [A.09]', async () => {
    await using server = new LinkedServer(minute)
    await server.start()
    const silent = server.connection.callTool('work', {}, never)
    await server.called()
    await passes(minute)
    expect((await silent).content).toContain('timed out: no answer within 60000 ms')
    const talking = server.connection.callTool('work', {}, never)
    await server.called()
    for (let told = 1; told <= 12; told++) {
      await passes(50_000)
      if (told < 12) await server.progress(told)
    }
    expect((await talking).content).toContain('timed out: it took more than 600000 ms')
  })
})
