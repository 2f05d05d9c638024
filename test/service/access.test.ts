// Who may call the HTTP service, and what a request from elsewhere gets.
import { chmod, readFile, stat, symlink, writeFile } from 'node:fs/promises'
import { request } from 'node:http'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { ServiceClient } from '../../client/index.ts'
import { Host } from '../../host/index.ts'
import { Service } from '../../host/service/service.ts'
import { serveHost } from './support.ts'

async function makeHost(): Promise<Host> {
  const home = path.join(await temporaryFolder('service'), 'state')
  return new Host({ env: { PATH: process.env.PATH, HOME: home, CAISSON_HOME: home } })
}

describe('the token of the service', () => {
  it('is made once, in a file for the user alone [H.02]', async () => {
    const host = await makeHost()
    const first = await serveHost(host)
    const { mode } = await stat(first.service.tokenFile)
    expect(mode & 0o777).toBe(0o600)
    expect(first.token).toMatch(/^[\w-]{43}$/)
    await first.service.close()
    const second = await serveHost(host)
    expect(second.token).toBe(first.token)
  })

  it('is needed for every route with a scope, and a wrong one tells nothing of it [H.02]', async () => {
    const { send, token } = await serveHost(await makeHost())
    const wrong = [
      undefined,
      '',
      'Bearer',
      'Bearer ',
      `Basic ${token}`,
      `Bearer ${token}x`,
      `Bearer ${token.slice(1)}`,
    ]
    for (const authorization of wrong) {
      const { status, headers, text: body } = await send('GET', '/v1/runs', { headers: { authorization } })
      expect([authorization, status]).toEqual([authorization, 401])
      expect(headers['www-authenticate']).toBe('Bearer realm="caisson"')
      expect(body).not.toContain(token.slice(0, 20))
    }
    expect((await send('GET', '/v1/runs')).status).toBe(200)
    expect((await send('GET', '/healthz', { headers: { authorization: undefined } })).status).toBe(200)
  })

  it('is not written where somebody has it in the path, and neither is a link [H.02]', async () => {
    const { send, token, logged } = await serveHost(await makeHost())
    const link = `caisson-link_${'WyJydW4t'.repeat(4)}`
    for (const secret of [token, `x=${token}`, `${'a/'.repeat(90)}${token}`, link])
      for (const at of [`/v1/runs/${secret}`, `/nowhere/${secret}`]) await send('GET', at)
    expect(logged.filter(({ path: at }) => at !== undefined)).toHaveLength(8)
    expect(JSON.stringify(logged)).not.toContain(token.slice(0, 10))
    expect(JSON.stringify(logged)).not.toContain(link.slice(-20))
  })

  it.each([
    ['readable by others', async (file: string) => chmod(file, 0o644)],
    ['of another form', async (file: string) => writeFile(file, 'short\n')],
  ])('is refused when its file is %s [H.02]', async (_, damage) => {
    const host = await makeHost()
    const { service } = await serveHost(host)
    await service.close()
    await damage(service.tokenFile)
    await expect(Service.start({ host, version: '0', port: 0 })).rejects.toThrow(
      /is no token of the service.*remove the file/,
    )
  })

  it('is refused when its file is a link [H.02]', async () => {
    const host = await makeHost()
    const { service } = await serveHost(host)
    await service.close()
    const other = path.join(await temporaryFolder('other'), 'token')
    await writeFile(other, await readFile(service.tokenFile), { mode: 0o600 })
    const { rm } = await import('node:fs/promises')
    await rm(service.tokenFile)
    await symlink(other, service.tokenFile)
    await expect(Service.start({ host, version: '0', port: 0 })).rejects.toThrow('cannot be read')
  })
})

describe('a request from elsewhere', () => {
  it('is refused when it names another host, as after DNS rebinding [H.02]', async () => {
    const { send, service } = await serveHost(await makeHost())
    const { port } = new URL(service.url)
    for (const host of ['evil.example', `evil.example:${port}`, '127.0.0.1', `127.0.0.1:${Number(port) + 1}`])
      expect((await send('GET', '/v1/runs', { headers: { host } })).status).toBe(403)
    for (const host of [`localhost:${port}`, `[::1]:${port}`, `LOCALHOST:${port}`])
      expect((await send('GET', '/v1/runs', { headers: { host } })).status).toBe(200)
  })

  it('is refused with another origin unless the service allows it [H.02]', async () => {
    const allowed = 'https://app.example.com'
    const { send, service } = await serveHost(await makeHost(), { origins: [allowed] })
    for (const origin of ['https://evil.example', 'null', `${allowed}.evil.example`, `https://127.0.0.1`]) {
      const { status, headers } = await send('GET', '/v1/runs', { headers: { origin } })
      expect([origin, status]).toEqual([origin, 403])
      expect(headers['access-control-allow-origin']).toBeUndefined()
    }
    const own = await send('GET', '/v1/runs', { headers: { origin: service.url } })
    expect([own.status, own.headers['access-control-allow-origin']]).toEqual([200, undefined])
    const other = await send('GET', '/v1/runs', { headers: { origin: allowed } })
    expect([other.status, other.headers['access-control-allow-origin']]).toEqual([200, allowed])
  })

  it('is refused as a form or as plain text [H.02]', async () => {
    const { send } = await serveHost(await makeHost())
    for (const type of [
      'text/plain',
      'application/x-www-form-urlencoded',
      'multipart/form-data; boundary=x',
    ]) {
      const { status, json } = await send('POST', '/v1/runs', {
        headers: { 'content-type': type },
        body: '{}',
      })
      expect([type, status, json]).toEqual([type, 415, expect.objectContaining({ code: 'not_json' })])
    }
  })
})

describe('where the service listens', () => {
  it('is no address of other machines without TLS, and the refusal says what to pass [H.02]', async () => {
    const host = await makeHost()
    for (const address of ['0.0.0.0', '::', '192.168.1.2', 'example.com'])
      await expect(Service.start({ host, version: '0', port: 0, address })).rejects.toThrow(/--tls-cert/)
  })

  it('is a Unix socket too, for which the folder is the authentication [H.02]', async () => {
    const { service } = await serveHost(await makeHost())
    const { mode } = await stat(path.dirname(service.socket))
    expect(mode & 0o077).toBe(0)
    const asked = request({
      socketPath: service.socket,
      path: '/v1/runs',
      headers: { host: 'anything' },
    }).end()
    const body = await new Promise<string>((resolve, reject) => {
      asked.once('error', reject)
      asked.once('response', (response) => text(response).then(resolve, reject))
    })
    expect(JSON.parse(body)).toEqual({ runs: [] })
  })

  it('is a socket that another service holds only after that one is gone [H.02]', async () => {
    const host = await makeHost()
    const first = await serveHost(host)
    await expect(Service.start({ host, version: '0', port: 0 })).rejects.toThrow('listens on')
    await first.service.close()
    // As a killed process leaves it.
    await writeFile(first.service.socket, '')
    await serveHost(host)
  })

  it('is a taken port only with a clear refusal [H.02]', async () => {
    const first = await serveHost(await makeHost())
    const port = Number(new URL(first.service.url).port)
    await expect(Service.start({ host: await makeHost(), version: '0', port })).rejects.toThrow(
      /another program listens on 127\.0\.0\.1:\d+; choose another with --port/,
    )
  })
})

it('a client names the refusal and its remedy [H.02]', async () => {
  const { service } = await serveHost(await makeHost())
  const stranger = new ServiceClient({ baseUrl: service.url, token: 'wrong' })
  await expect(stranger.call('listRuns', {})).rejects.toMatchObject({
    name: 'ServiceError',
    status: 401,
    code: 'unauthorized',
    message: expect.stringContaining('Authorization: Bearer'),
  })
})
