// The files of the web page, as the service serves them.
import { gzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host/index.ts'
import { readPage } from '../../host/service/page-files.ts'
import { cliPlace } from '../../host/test/support/cli.ts'
import { serveHost } from './support.ts'

describe('the page', () => {
  const serve = async () => {
    const home = await temporaryFolder('page')
    return await serveHost(new Host({ env: { HOME: home, CAISSON_HOME: `${home}/state` } }))
  }

  it('is served without a token, with a policy that allows its own files alone [H.02]', async () => {
    const { send } = await serve()
    const given = { headers: { authorization: undefined } }
    const { status, headers, text } = await send('GET', '/', given)
    expect([status, headers['content-type']]).toEqual([200, 'text/html; charset=utf-8'])
    const policy = String(headers['content-security-policy'])
    expect(policy).toContain("default-src 'none'; script-src 'self'; style-src 'self'")
    expect(policy).not.toMatch(/unsafe|\*|https?:/)
    expect(text).not.toMatch(/<script(?![^>]* src=)|style=|\son[a-z]+=/)
    for (const [, file = ''] of text.matchAll(/(?:src|href)="([^"]+)"/g))
      expect((await send('GET', file, given)).status).toBe(200)
    const etag = String(headers.etag)
    const again = await send('GET', '/', { headers: { 'if-none-match': etag } })
    expect([again.status, again.text]).toEqual([304, ''])
  })

  it('is refused to another host name and another origin, as every route [H.02]', async () => {
    const { send } = await serve()
    for (const path of ['/', '/page/app.js'])
      for (const headers of [{ host: 'evil.example' }, { origin: 'https://evil.example' }])
        expect((await send('GET', path, { headers })).status).toBe(403)
  })

  it('has no other file than its own [H.02]', async () => {
    const { send } = await serve()
    for (const name of ['main.tsx', '..%2fpackage.json', '%2e%2e%2f%2e%2e%2fpackage.json', 'constructor', ''])
      expect((await send('GET', `/page/${name}`)).status).toBe(404)
  })

  it('is named with the token in a terminal [H.02]', async () => {
    const place = await cliPlace({})
    const inTerminal = place.startInTerminal('serve', '--port', '0')
    await expect.poll(inTerminal.output, { timeout: 30_000 }).toContain('Token: ')
    expect(inTerminal.output()).toMatch(/Page: http:\/\/127\.0\.0\.1:\d+\/#token=[\w-]{43}/)
    inTerminal.type('\u0003')
    await inTerminal.ended
  })

  it('is below 150 kB compressed, all files together [H.02]', async () => {
    const files = await readPage()
    expect([...files.keys()].sort()).toEqual(['app.css', 'app.js', 'icon.svg', 'index.html', 'worker.js'])
    const sizes = [...files.values()].map((content) => gzipSync(content).length)
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBeLessThan(150_000)
    const { service } = await serve()
    const answer = await fetch(`${service.url}/page/app.js`, { headers: { 'accept-encoding': 'gzip' } })
    expect(answer.headers.get('content-encoding')).toBe('gzip')
    expect(await answer.text()).toBe(Buffer.from(files.get('app.js') ?? []).toString())
  })
})
