// web_fetch of the library against real servers on this machine, which stand in for the internet by being allowed by name.
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { gzipSync } from 'node:zlib'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createLLMEnvironment } from '../../index.ts'
import { caller, readValue } from './support.ts'

/** A server, and a caller that may reach it alone. */
async function serve(listener: RequestListener) {
  const asked: string[] = []
  const server = createServer((request, response) => {
    asked.push(request.url ?? '')
    listener(request, response)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`
  const environment = createLLMEnvironment({ builtIns: true, webFetch: { privateHosts: [host] } })
  return { host, asked, url: `http://${host}`, fetch: caller('web_fetch', undefined, environment) }
}

const html = { 'content-type': 'text/html; charset=utf-8' }

describe('web_fetch', () => {
  it('gives HTML as Markdown, JSON indented, other text as it is, with the status [S2.15]', async () => {
    const { url, fetch } = await serve((request, response) => {
      if (request.url === '/page')
        response
          .writeHead(200, html)
          .end('<title>T</title><h1>Hi</h1><p>a <a href="/b">b</a><script>x()</script></p>')
      else if (request.url === '/json')
        response.writeHead(200, { 'content-type': 'application/json' }).end('{"a":[1]}')
      else response.writeHead(404, { 'content-type': 'text/plain' }).end('gone\u0000\u0001')
    })
    expect(readValue(await fetch({ url: `${url}/page` }))).toMatchObject({
      status: 200,
      title: 'T',
      content: `## Hi\n\na [b](${url}/b)`,
      truncated: false,
    })
    expect(readValue(await fetch({ uri: `${url}/json` })).content).toBe('{\n  "a": [\n    1\n  ]\n}')
    const missing = await fetch({ url: `${url}/nothing` })
    expect(missing.content).toContain('binary data (status 404)')
  })

  it('refuses what is not on the public internet, however it is written or led to [S2.09] [S2.15]', async () => {
    const inside = await serve((_, response) => response.end('inside'))
    const port = inside.host.split(':')[1]
    const stranger = caller('web_fetch')
    for (const url of [
      inside.url,
      `http://localhost:${port}/`,
      `http://2130706433:${port}/`,
      `http://0x7f.1:${port}/`,
      `http://[::1]:${port}/`,
      `http://[::ffff:127.0.0.1]:${port}/`,
      `http://0.0.0.0:${port}/`,
      'http://169.254.169.254/latest/meta-data/',
      'http://10.0.0.1/',
      'http://192.168.1.1/',
      'http://100.100.100.200/',
    ]) {
      const result = await stranger({ url })
      expect(result, url).toMatchObject({ ok: false })
      expect(result.content, url).toContain('Error (denied)')
    }
    for (const url of [
      'file:///etc/passwd',
      'ftp://x/',
      'x',
      'http://user:pass@example.com/',
      'data:text/plain,x',
    ])
      expect((await stranger({ url })).content, url).toContain('Error (invalid_input)')
    expect(inside.asked).toEqual([])
  })

  it('judges a name by where it leads when it is connected to [S2.15]', async () => {
    const inside = await serve((_, response) => response.end('inside'))
    // A name of the hosts file, which is not one of those that mean this machine by definition.
    const { hostname } = await import('node:os')
    const { lookup } = await import('node:dns/promises')
    const name = hostname()
    const found = await lookup(name, { all: true }).catch(() => [])
    const result = await caller('web_fetch')({ url: `http://${name}:${inside.host.split(':')[1]}/` })
    expect(result.ok).toBe(false)
    expect(result.content).toContain(found.length > 0 ? 'Error (denied)' : 'Error (unavailable)')
    expect(inside.asked).toEqual([])
  })

  it('follows few redirects, each judged anew: none to the inside [S2.15]', async () => {
    const other = await serve((_, response) => response.end('other'))
    const { url, fetch, asked } = await serve((request, response) => {
      const to: Record<string, string> = {
        '/once': '/here',
        '/meta': 'http://169.254.169.254/latest/',
        '/other': `${other.url}/`,
        '/file': 'file:///etc/passwd',
        '/round': '/round',
      }
      const location = to[request.url ?? '']
      if (location === undefined) response.writeHead(200, { 'content-type': 'text/plain' }).end('here')
      else response.writeHead(302, { location }).end()
    })
    expect(readValue(await fetch({ url: `${url}/once` }))).toMatchObject({
      url: `${url}/here`,
      content: 'here',
    })
    expect((await fetch({ url: `${url}/meta` })).content).toContain('metadata service')
    expect((await fetch({ url: `${url}/other` })).content).toContain('Error (denied)')
    expect((await fetch({ url: `${url}/file` })).content).toContain('no address of http or https')
    expect((await fetch({ url: `${url}/round` })).content).toContain('more than 5 times')
    expect(asked.filter((path) => path === '/round')).toHaveLength(6)
    expect(other.asked).toEqual([])
  })

  it('bounds bodies that never end, swell when they are unpacked, or never come [S2.15]', async () => {
    const zipped = gzipSync(Buffer.alloc(200 * 1024 * 1024, 'a'))
    const { url, fetch } = await serve((request, response) => {
      const plain = { 'content-type': 'text/plain' }
      if (request.url === '/zip')
        response.writeHead(200, { ...plain, 'content-encoding': 'gzip' }).end(zipped)
      else if (request.url === '/endless') {
        response.writeHead(200, plain)
        const more = () => {
          while (!response.destroyed && response.write('b'.repeat(65_536)));
          if (!response.destroyed) response.once('drain', more)
        }
        more()
      } else if (request.url === '/slow') response.writeHead(200, plain).write('c')
    })
    for (const path of ['/zip', '/endless']) {
      const value = readValue(await fetch({ url: url + path }))
      expect(value).toMatchObject({ truncated: true })
      expect(String(value.content).length).toBe(40_000)
    }
    for (const path of ['/slow', '/silent'])
      expect((await fetch({ url: url + path, timeoutMs: 300 })).content).toContain('Error (timed_out)')
    const controller = new AbortController()
    const running = fetch({ url: `${url}/silent` }, { abortSignal: controller.signal })
    controller.abort()
    expect((await running).content).toContain('cancelled')
  })

  it('survives pages that break parsers, and stays within what a result may be [S2.15]', async () => {
    const pages: Record<string, string> = {
      '/deep': '<div>'.repeat(100_000),
      '/odd': `<p>${'"\\\u0001'.repeat(100_000)}`,
    }
    const { url, fetch } = await serve((request, response) => {
      response.writeHead(200, html).end(pages[request.url ?? ''])
    })
    for (const path of Object.keys(pages)) {
      const result = await fetch({ url: url + path, maxChars: 100_000, timeoutMs: 5_000 })
      expect(result.content.length, path).toBeLessThan(256 * 1024)
      if (result.ok) expect(readValue(result)).toMatchObject({ status: 200 })
      else expect(result.content, path).toMatch(/^Error \((unavailable|timed_out)\): /)
    }
  })
})
