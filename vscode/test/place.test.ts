import { chmod, mkdir } from 'node:fs/promises'
import { createServer } from 'node:http'
import path from 'node:path'
import { expect, it, onTestFinished, vi } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { findPlace, namedPlace } from '../session/place.ts'
import { socketFetch } from '../session/socket-fetch.ts'

it('takes an address with TLS, or one of this machine, and nothing else [H.03]', () => {
  for (const [given, url] of [
    ['https://caisson.example.com', 'https://caisson.example.com'],
    ['https://caisson.example.com:8443/', 'https://caisson.example.com:8443'],
    ['http://127.0.0.1:3789', 'http://127.0.0.1:3789'],
    ['http://localhost:3789/', 'http://localhost:3789'],
  ])
    expect(namedPlace(given ?? '')).toEqual({ kind: 'named', url })
  for (const given of [
    'http://caisson.example.com',
    'http://127.0.0.1.example.com',
    'https://user:secret@caisson.example.com',
    'https://caisson.example.com/other',
    'https://caisson.example.com/?token=x',
    'file:///etc/passwd',
    'javascript:alert(1)',
    'caisson.example.com',
  ]) {
    const place = namedPlace(given)
    expect(place.kind, given).toBe('wrong')
    expect(JSON.stringify(place)).not.toContain('secret')
  }
})

it('finds no service where none is, and uses none in a folder that others can write [H.03]', async () => {
  const home = await temporaryFolder('vscode-home')
  vi.stubEnv('CAISSON_HOME', home)
  expect(await findPlace('', '0.1.0')).toEqual({ kind: 'none' })
  const folder = path.join(home, 'service')
  await mkdir(folder, { mode: 0o777 })
  const server = createServer((_, response) => response.end('{}')).listen(path.join(folder, 'service.sock'))
  onTestFinished(() => void server.close())
  await chmod(folder, 0o777)
  expect(await findPlace('', '0.1.0')).toMatchObject({ kind: 'wrong' })
})

it('asks over the socket as fetch does: body, status, stream and abort [H.03]', async () => {
  const socket = path.join(await temporaryFolder('vscode-socket'), 's')
  const server = createServer(async (request, response) => {
    const parts: Buffer[] = []
    for await (const part of request) parts.push(part as Buffer)
    if (request.url === '/none') return response.writeHead(204).end()
    if (request.url === '/never') return response.flushHeaders()
    response.writeHead(201, { 'content-type': 'application/json' })
    response.end(
      JSON.stringify({ url: request.url, key: request.headers['x-key'], body: `${Buffer.concat(parts)}` }),
    )
  }).listen(socket)
  onTestFinished(() => void server.close())
  onTestFinished(() => server.closeAllConnections())
  const ask = socketFetch(socket)
  const answer = await ask(new URL('http://localhost/a?b=1'), {
    ...{ method: 'POST', headers: { 'x-key': 'k' }, body: '{"é":1}' },
  })
  expect(answer.status).toBe(201)
  expect(await answer.json()).toEqual({ url: '/a?b=1', key: 'k', body: '{"é":1}' })
  expect((await ask(new URL('http://localhost/none'))).body).toBeNull()
  const stopping = new AbortController()
  const never = await ask(new URL('http://localhost/never'), { signal: stopping.signal })
  stopping.abort(new Error('enough'))
  await expect(never.text()).rejects.toThrow()
  await expect(ask(new URL('http://localhost/never'), { signal: stopping.signal })).rejects.toThrow('enough')
  await expect(socketFetch(`${socket}-missing`)(new URL('http://localhost/'))).rejects.toThrow(/ENOENT/)
})
