// Network access of a sandbox without a VM: programs' requests come over the real link, and a real server answers.
import { once } from 'node:events'
import { createServer } from 'node:http'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { EgressRule } from '#specs/protocol/egress.ts'
import { makePolicy } from '../../host/egress/policy.ts'
import { directNetwork } from '../../host/net/network.ts'
import { openSandboxNetwork } from '../../host/sandbox/sandbox-network.ts'
import { listen } from '../egress/support.ts'
import { createWorld } from '../link/support.ts'

async function openNetwork(configuration: readonly EgressRule[], remedy?: string) {
  const policy = makePolicy({ configuration, otherwise: 'deny' })
  if (!policy.ok) throw new Error(policy.error)
  const logged: object[] = []
  const network = openSandboxNetwork({
    policy: policy.value,
    network: directNetwork,
    log: (entry) => logged.push(entry),
    ...(remedy === undefined ? {} : { remedy }),
  })
  const world = createWorld({
    onStream: (stream, headers) => {
      if (!network.handleStream(stream, headers)) stream.respond({ ':status': 404 }, { endStream: true })
    },
  })
  onTestFinished(async () => {
    await network.close()
    await world[Symbol.asyncDispose]()
  })
  const guest = world.startGuest()
  await world.link.ready()
  const ask = async (authority: string, path = '/') => {
    const stream = await guest.http.openStream({
      ':method': 'GET',
      ':scheme': 'http',
      ':authority': authority,
      ':path': path,
    })
    let text = ''
    stream.setEncoding('utf8').on('data', (piece: string) => {
      text += piece
    })
    const closed = new Promise((resolve) => stream.on('error', () => undefined).once('close', resolve))
    stream.end()
    const [headers] = (await once(stream, 'response')) as [Record<string, unknown>]
    // A refusal may close the stream before its end was seen.
    await closed
    return { status: headers[':status'], text }
  }
  return { ask, logged, network }
}

describe('network access of a sandbox', () => {
  it('is what rules allow; the rest is refused with the reason, and nobody is asked [V.11 S1.14]', async () => {
    const server = createServer((_, response) => void response.end('from outside'))
    const port = await listen(server)
    onTestFinished(() => void server.close())
    const { ask, logged } = await openNetwork([
      { effect: 'allow', host: '127.0.0.1', schemes: ['http'], ports: [port] },
      { effect: 'ask', host: 'asked.test', schemes: ['http'] },
    ])
    expect(await ask(`127.0.0.1:${port}`)).toEqual({ status: 200, text: 'from outside' })
    const denied = await ask('other.test')
    expect(denied).toMatchObject({ status: 403, text: expect.stringMatching(/other\.test/) })
    const asked = await ask('asked.test')
    expect(asked).toMatchObject({ status: 403, text: expect.stringMatching(/a sandbox asks nobody/) })
    expect(logged).toMatchObject([
      { type: 'egress-start' },
      { type: 'egress-end' },
      { type: 'egress-denied' },
      { type: 'egress-denied' },
    ])
  })

  it('refuses with the remedy of the command that started it [V.11]', async () => {
    const ask = { effect: 'ask', host: 'asked.test', schemes: ['http'] } as const
    const { ask: request } = await openNetwork(
      [{ ...ask, schemes: [...ask.schemes] }],
      'start it with --allow-host',
    )
    expect((await request('asked.test')).text).toContain('a sandbox asks nobody; start it with --allow-host')
  })

  it('has no model and none of the services of a run, and ends when it is closed [V.11]', async () => {
    const { ask, network } = await openNetwork([{ effect: 'allow', host: '*', schemes: ['http'] }])
    for (const path of ['/v1/models', '/v1/chat/completions', '/changes/run-00000000000000000000'])
      expect(await ask('gateway', path)).toMatchObject({ status: 404 })
    await network.close()
    expect(await ask('other.test')).toMatchObject({ status: 404 })
  })
})
