import type { RequestListener } from 'node:http'
import { describe, expect, it } from 'vitest'
import { openWeb } from './support.ts'

describe('a redirect', () => {
  const redirect =
    (to: (path: string) => string | undefined): RequestListener =>
    (request, response) => {
      const location = to(request.url ?? '')
      if (location === undefined)
        return void response.writeHead(200, { 'content-type': 'text/plain' }).end('there')
      response.writeHead(302, { location }).end()
    }

  it('is followed, relative ones too, each hop judged and journaled', async () => {
    const test = await openWeb({
      servers: [redirect((path) => ({ '/a': '/b?x', '/b?x': `//www.site.test:${port()}/c` })[path])],
    })
    const port = (): number => test.ports[0] ?? 0
    const answer = await test.fetch(`https://site.test:${port()}/a`)
    expect(answer).toMatchObject({ value: { url: `https://www.site.test:${port()}/c`, content: 'there' } })
    expect(test.records.map(({ target }) => target.replace(/:\d+/, ''))).toEqual([
      'GET https://site.test/a',
      'GET https://site.test/b?x',
      'GET https://www.site.test/c',
    ])
  })

  it('is refused to a host that no rule allows [G.02]', async () => {
    const test = await openWeb({
      servers: [redirect(() => `https://evil.test:${test.ports[0]}/`)],
      rules: (ports) => [{ effect: 'allow', host: 'site.test', ports: [...ports] }],
    })
    expect(await test.fetch(`https://site.test:${test.ports[0]}/`)).toMatchObject({
      error: { code: 'egress_denied' },
    })
    expect(test.denied).toEqual([expect.stringContaining('evil.test')])
  })

  it('is refused to a private address, however it is spelled [G.02]', async () => {
    for (const inside of [
      'http://10.1.2.3/',
      'https://0x7f.1:1/',
      'https://[::ffff:10.0.0.1]/',
      'https://2130706433:1/',
    ]) {
      const test = await openWeb({ servers: [redirect(() => inside)] })
      const answer = await test.fetch(`https://site.test:${test.ports[0]}/`)
      expect(answer).toMatchObject({ ok: false })
      expect(test.records).toHaveLength(1)
    }
  })

  it('is refused from https to http, to another scheme, to nonsense, and beyond five', async () => {
    const plain = redirect(() => undefined)
    for (const to of [
      'http://site.test/',
      'ftp://site.test/',
      'javascript:alert(1)',
      'https://a b/',
      '/again',
    ]) {
      const test = await openWeb({ servers: [redirect(() => to), { plain }] })
      const answer = await test.fetch(`https://site.test:${test.ports[0]}/`)
      expect(answer).toMatchObject({ ok: false, error: { code: 'upstream_redirect' } })
      expect(test.records).toHaveLength(to === '/again' ? 6 : 1)
    }
  })

  it("does not carry the guest's headers to another origin [G.01]", async () => {
    const seen: unknown[] = []
    const test = await openWeb({
      servers: [
        (request, response) => {
          seen.push(request.headers.authorization)
          const to = { '/a': '/b', '/b': `https://www.site.test:${test.ports[0]}/c` }[request.url ?? '']
          if (to === undefined) return void response.writeHead(200, { 'content-type': 'text/plain' }).end('x')
          response.writeHead(307, { location: to }).end()
        },
      ],
    })
    await test.fetch(`https://site.test:${test.ports[0]}/a`, { headers: { authorization: 'Bearer abc' } })
    expect(seen).toEqual(['Bearer abc', 'Bearer abc', undefined])
  })
})

describe('a secret in a request for a page', () => {
  const value = 'ghp_0123456789abcdefABCDEF'
  const options = (server: RequestListener) => ({
    servers: [server],
    secrets: { TOKEN: { from: { env: 'TOKEN' }, hosts: ['site.test'] } },
    env: { TOKEN: value },
  })
  /** Gives back what it was sent, as careless servers do. */
  const echo: RequestListener = (request, response) => {
    const { authorization = '' } = request.headers
    const more = { 'content-type': 'text/html', 'x-was': authorization }
    response
      .writeHead(200, more)
      .end(
        `<title>${authorization}</title><p>${authorization}${request.url === '/split' ? '<p>ghp_<b></b>0123456789abcdefABCDEF' : ''}`,
      )
  }

  it('reaches the server and is taken out of everything that comes back [G.01] [G.04]', async () => {
    const sent: unknown[] = []
    const test = await openWeb(
      options((request, response) => {
        sent.push(request.headers.authorization)
        echo(request, response)
      }),
    )
    const url = `https://site.test:${test.ports[0]}/`
    const credentials = `Basic ${Buffer.from('me:{{TOKEN}}').toString('base64')}`
    const answers = [
      await test.fetch(`${url}split`, { headers: { authorization: 'Bearer {{TOKEN}}' } }),
      await test.fetch(url, { headers: { authorization: credentials }, form: 'raw' }),
    ]
    expect(sent).toEqual([`Bearer ${value}`, `Basic ${Buffer.from(`me:${value}`).toString('base64')}`])
    const [readable] = answers
    expect(readable).toMatchObject({ ok: true, value: { title: 'Bearer [redacted]' } })
    const seen = JSON.stringify([answers, test.records])
    expect(seen).not.toContain('ghp_')
    expect(seen).not.toContain(Buffer.from(`me:${value}`).toString('base64').slice(4, -4))
    expect(test.records).toMatchObject([{ secrets: ['TOKEN'] }, { secrets: ['TOKEN'] }])
  })

  it('is refused for another host before anything is sent, and does not follow a redirect there [G.04]', async () => {
    const sent: unknown[] = []
    const test = await openWeb(
      options((request, response) => {
        sent.push(request.headers.authorization)
        response.writeHead(302, { location: `https://www.site.test:${test.ports[0]}/` })
        response.end()
      }),
    )
    const headers = { authorization: 'Bearer {{TOKEN}}' }
    expect(await test.fetch(`https://www.site.test:${test.ports[0]}/`, { headers })).toMatchObject({
      error: { code: 'secret_refused', message: expect.stringContaining('site.test') },
    })
    expect(sent).toEqual([])
    await test.fetch(`https://site.test:${test.ports[0]}/`, { headers })
    expect(sent.slice(0, 2)).toEqual([`Bearer ${value}`, undefined])
  })

  it('does not continue in the address of a redirect, nor in the words of an error [G.01] [G.04]', async () => {
    const test = await openWeb({
      ...options((request, response) => {
        const sent = (request.headers.authorization ?? '').replace('Bearer ', '')
        if (request.url === '/type')
          return void response.writeHead(200, { 'content-type': `x/${sent}` }).end()
        const to = { '/out': `https://evil.test/?t=${sent}`, '/bad': `ftp://a/${sent}` }[request.url ?? '']
        response.writeHead(302, { location: to ?? '/' }).end()
      }),
      rules: (ports) => [{ effect: 'allow', host: 'site.test', ports: [...ports] }],
    })
    const headers = { authorization: 'Bearer {{TOKEN}}' }
    const base = `https://site.test:${test.ports[0]}`
    const answers = []
    for (const path of ['/out', '/bad', '/type']) answers.push(await test.fetch(base + path, { headers }))
    expect(answers).toMatchObject([
      { error: { code: 'upstream_redirect', message: expect.stringContaining('containing a secret') } },
      { error: { code: 'upstream_redirect' } },
      { error: { code: 'unsupported_content' } },
    ])
    expect(JSON.stringify([answers, test.records, test.denied])).not.toContain('ghp_')
    expect(test.records).toHaveLength(3)
  })

  it('is not put into an address, and that is said [G.04]', async () => {
    const test = await openWeb(options(echo))
    const answer = await test.fetch(`https://site.test:${test.ports[0]}/?key={{TOKEN}}`)
    expect(answer).toMatchObject({
      error: { code: 'invalid_request', message: expect.stringContaining('headers') },
    })
  })
})
