import { once } from 'node:events'
import { mkdir, stat } from 'node:fs/promises'
import { connect } from 'node:net'
import path from 'node:path'
import fc from 'fast-check'
import { describe, expect, it, onTestFinished } from 'vitest'
import { encodeTypedFrame, frameKinds } from '#specs/node/typed-frames.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { ControlServer, controlLimits } from '../../host/control/server.ts'
import { VmClient } from '../../host/control/vm-client.ts'
import { info, textOf } from '../../host/test/control/support.ts'
import { controlBench } from './support.ts'

const message = (value: unknown): Buffer =>
  encodeTypedFrame(frameKinds.json, Buffer.from(JSON.stringify(value)))

/** What the server answers to these bytes until it closes. */
async function answerTo(socketPath: string, bytes: Uint8Array): Promise<Buffer> {
  const socket = connect(socketPath)
  socket.on('error', () => undefined)
  socket.end(bytes)
  const pieces: Buffer[] = []
  socket.on('data', (piece: Buffer) => pieces.push(piece))
  await once(socket, 'close')
  return Buffer.concat(pieces)
}

describe('the control socket', () => {
  it('says what VM it serves, and is nobody else’s [V.08]', async () => {
    const bench = await controlBench()
    expect(bench.client.info).toEqual(info)
    expect((await stat(bench.socket)).mode & 0o777).toBe(0o600)
  })

  it('gives the console so far, and follows it to the end of the VM [V.08]', async () => {
    const bench = await controlBench()
    expect(await textOf(bench.client.console())).toBe('so far\n')
    const followed = bench.client.console({ follow: true })
    const next = async () => String((await followed.next()).value)
    expect(await next()).toBe('so far\n')
    bench.say(Buffer.from('more\n'))
    expect(await next()).toBe('more\n')
    await bench.server[Symbol.asyncDispose]()
    expect(await followed.next()).toEqual({ done: true, value: undefined })
  })

  it('leaves console output out for a reader that is too slow, and says how much [V.08]', async () => {
    const bench = await controlBench()
    const reading = bench.client.console({ follow: true })
    expect((await reading.next()).value?.toString()).toBe('so far\n')
    const chunk = Buffer.alloc(100_000, 'x')
    for (let count = 0; count < 200; count++) bench.say(chunk)
    // A slow machine leaves it out as well while the reader has not caught up.
    const saying = setInterval(() => bench.say(Buffer.from('the end')), 300)
    onTestFinished(() => clearInterval(saying))
    let text = ''
    for await (const piece of reading) {
      text += piece.toString()
      if (text.includes('the end')) break
    }
    expect(text.length).toBeLessThan(2 * controlLimits.consoleBacklogBytes)
    expect(text).toMatch(/\[… \d+ bytes left out for this reader …\]\nthe end$/)
  })

  it('ends the VM when asked and lets the asker see it go [V.08]', async () => {
    const bench = await controlBench()
    await bench.client.stop({ timeoutMs: 5_000 })
    expect(bench.stops).toEqual([false])
    await expect(VmClient.connect(bench.socket)).rejects.toMatchObject({ code: 'connection_lost' })
  })

  it('pauses the VM when asked, and says why it cannot continue [V.08 V.04]', async () => {
    const { client } = await controlBench()
    await client.setPaused(true)
    await expect(client.setPaused(false)).rejects.toThrow('it cannot continue')
  })

  it('refuses what is no request with a reason, and serves on [V.08]', async () => {
    const bench = await controlBench()
    for (const value of [
      { op: 'vm/eval' },
      { op: 'vm/info', more: 1 },
      [],
      null,
      { op: 'vm/forward', port: 0 },
    ]) {
      const answer = (await answerTo(bench.socket, message(value))).subarray(5).toString()
      expect(JSON.parse(answer)).toMatchObject({ ok: false, error: { code: 'bad_request' } })
    }
    const answer = (await answerTo(bench.socket, message({ op: 'run/watch' }))).subarray(5).toString()
    expect(JSON.parse(answer)).toMatchObject({ ok: false, error: { code: 'not_served' } })
  })

  it('outlives any bytes at all [V.08]', async () => {
    const bench = await controlBench((call) => call.socket.destroy())
    const frame = fc
      .tuple(fc.constantFrom(...Object.values(frameKinds)), fc.uint8Array({ maxLength: 40 }))
      .map(([kind, payload]) => encodeTypedFrame(kind, payload))
    const request = fc.constantFrom(
      message({ op: 'vm/shell', argv: [], terminal: null }),
      message({ op: 'vm/console', follow: true }),
      message({ op: 'vm/forward', port: 1 }),
    )
    const bytes = fc.uint8Array({ maxLength: 60 }).map((raw) => Buffer.from(raw))
    await fc.assert(
      fc.asyncProperty(fc.array(fc.oneof(frame, request, bytes), { maxLength: 6 }), async (pieces) => {
        await answerTo(bench.socket, Buffer.concat(pieces))
      }),
      { seed: 20_261_121, numRuns: 60 },
    )
    expect((await VmClient.connect(bench.socket)).info).toEqual(info)
  })

  it('is reached by a path longer than a socket address holds [V.08]', async () => {
    const folder = path.join(await temporaryFolder('long'), 'x'.repeat(200))
    await mkdir(folder)
    const file = path.join(folder, 'control.sock')
    await using _ = await ControlServer.open(file, {})
    expect((await stat(file)).isSocket()).toBe(true)
    await expect(VmClient.connect(file)).rejects.toMatchObject({ code: 'not_possible_now' })
  })

  it('takes the place of one that a killed process left, and leaves nothing behind itself [V.08]', async () => {
    const file = path.join(await temporaryFolder('stale'), 'control.sock')
    const left = await ControlServer.open(file, {})
    await using next = await ControlServer.open(file, {})
    await left[Symbol.asyncDispose]()
    await next[Symbol.asyncDispose]()
    await expect(stat(file)).rejects.toThrow(/ENOENT/)
  })
})
