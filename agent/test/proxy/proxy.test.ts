import { once } from 'node:events'
import { createServer } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { HttpSessionLostError } from '../../link/http.ts'
import type { ExecRequest, Helper } from '../../link/root-helper.ts'
import { Gate } from '../../proxy/gate.ts'
import { createProgramNetwork, proxyEnvironment } from '../../proxy/proxy.ts'
import { Refusals } from '../../proxy/refusals.ts'
import { createCodeTools } from '../../tools/code/code.ts'

const noHost = {
  openStream: () => Promise.reject(new HttpSessionLostError('no session with the host for HTTP')),
}
const never = new AbortController().signal

/** A port of this machine that nobody listens on. */
async function freePort(): Promise<number> {
  const server = createServer()
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

async function ask(port: number, request: string): Promise<string> {
  const socket = connect(port, '127.0.0.1')
  socket.write(request)
  return await text(socket)
}

describe('the network of programs', () => {
  it('listens from the first program on, and without a host says so at once [S1.14 G.03]', async () => {
    const port = await freePort()
    const network = createProgramNetwork(noHost, port)
    expect(await network.prepare()).toEqual({ env: proxyEnvironment, problem: null })
    expect((await network.prepare()).problem).toBe(null)
    const watch = network.watch()
    expect(await ask(port, 'CONNECT a.test:443 HTTP/1.1\r\n\r\n')).toMatch(
      /^HTTP\/1\.1 504 Refused: .*no session/,
    )
    expect(watch.list()).toEqual([expect.stringMatching(/^CONNECT a\.test:443: .*no session/)])
  })

  it('says that it could not listen, and tries again with the next program [G.03]', async () => {
    const port = await freePort()
    const other = createServer()
    await once(other.listen(port, '127.0.0.1'), 'listening')
    const network = createProgramNetwork(noHost, port)
    expect((await network.prepare()).problem).toContain(`could not listen on 127.0.0.1:${port}`)
    other.close()
    await once(other, 'close')
    expect((await network.prepare()).problem).toBe(null)
  })

  it('is named in lower and upper case, leaves the VM itself out, and is no proxy for everything [S1.14]', () => {
    for (const name of ['HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY']) {
      expect(proxyEnvironment[name]).toBe(proxyEnvironment[name.toLowerCase()])
      expect(proxyEnvironment[name]).toBeDefined()
    }
    expect(proxyEnvironment.NO_PROXY?.split(',')).toContain('127.0.0.1')
    expect(proxyEnvironment.NODE_USE_ENV_PROXY).toBe('1')
    expect(Object.keys(proxyEnvironment).map((name) => name.toUpperCase())).not.toContain('ALL_PROXY')
  })

  it('is in the environment of run_bash, and the model learns what was refused during the call [G.03 S1.14]', async () => {
    const port = await freePort()
    const network = createProgramNetwork(noHost, port)
    await network.prepare()
    await ask(port, 'CONNECT before.test:443 HTTP/1.1\r\n\r\n')
    const asked: ExecRequest[] = []
    // The root side's place is taken by a program's doings: one connection that is refused.
    const helper: Pick<Helper, 'execInSandbox' | 'readStatus'> = {
      execInSandbox: async (request) => {
        asked.push(request)
        await ask(port, 'CONNECT during.test:443 HTTP/1.1\r\n\r\n')
        const ended = {
          exitCode: 56,
          signal: null,
          timedOut: false,
          oomKilled: false,
          pidsRefused: 0,
          durationMs: 5,
        }
        return { ok: true, value: ended }
      },
      readStatus: async () => ({ ok: false, error: { code: 'unavailable', message: 'not here' } }),
    }
    const [bash] = createCodeTools(helper as Helper, { network })
    const input = bash?.inputSchema.parse({ command: 'curl https://during.test' })
    const result = await bash?.execute(input, { signal: never, emitOutput: () => undefined })
    if (result?.ok !== true) throw new Error(JSON.stringify(result))
    const told = bash?.render?.(bash.outputSchema.parse(result.value)) ?? ''
    expect(asked[0]?.env).toMatchObject(proxyEnvironment)
    expect(told.split('\n')).toEqual([
      expect.stringMatching(/^\[no connection: CONNECT during\.test:443: .*no session/),
      '[exit code 56, after 0.0 s]',
    ])
  })
})

describe('the list of refusals', () => {
  it('is bounded in number and length, counts what is equal, and forgets nothing that a call waits for [G.03]', () => {
    const refusals = new Refusals()
    refusals.note('CONNECT old.test:443', 'no')
    const watch = refusals.watch()
    for (let count = 0; count < 3; count += 1) refusals.note('CONNECT a.test:443', 'no')
    refusals.note('GET http://b.test/', `line\nbreak ${'x'.repeat(5_000)}`)
    const [first, second = ''] = watch.list()
    expect(first).toBe('CONNECT a.test:443: no (3 times)')
    expect(second).toMatch(/^GET http:\/\/b\.test\/: line break x+ …$/)
    expect(second.length).toBeLessThanOrEqual(600)
    for (let count = 0; count < 1_000; count += 1) refusals.note(`CONNECT host-${count}.test:443`, 'no')
    const many = watch.list()
    expect(many).toHaveLength(21)
    expect(many[20]).toMatch(/^and \d+ more$/)
    expect(refusals.watch().list()).toEqual([])
  })
})

describe('the gate', () => {
  it('gives a place as soon as one is free, to nobody who has gone, and not forever', async () => {
    const gate = new Gate({ maxOpen: 1, waitMs: 50, resetBurst: 10, resetsPerSecond: 10 })
    expect(await gate.enter(never)).toBe(true)
    expect(await gate.enter(never)).toBe(false)
    const gone = new AbortController()
    const waiting = gate.enter(gone.signal)
    gone.abort()
    expect(await waiting).toBe(false)
    const next = gate.enter(never)
    gate.leave(false)
    expect(await next).toBe(true)
  })

  it('makes those wait who break off too many', async () => {
    const gate = new Gate({ maxOpen: 100, waitMs: 50, resetBurst: 3, resetsPerSecond: 1 })
    for (let count = 0; count < 5; count += 1) {
      expect(await gate.enter(never)).toBe(count < 4)
      if (count < 4) gate.leave(true)
    }
  })
})
