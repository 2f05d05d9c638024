// The environment of `caisson serve`: files of variables, hostile values, origins of pages, and a service without a token.
import { execFile } from 'node:child_process'
import { chmod, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host/index.ts'
import { Service } from '../../host/service/service.ts'
import { cliPlace } from '../../host/test/support/cli.ts'
import { serveHost } from './support.ts'

async function makeHost(): Promise<Host> {
  const home = path.join(await temporaryFolder('service'), 'state')
  return new Host({ env: { PATH: process.env.PATH, HOME: home, CAISSON_HOME: home } })
}

describe('an --env-file', () => {
  it('is refused with exit code 2 when it is missing or unsafe, by serve and by run [S0.09]', async () => {
    const place = await cliPlace({ env: 'PORT=0\n', open: 'PORT=0\n', loads: 'LD_PRELOAD=/tmp/x.so\n' })
    const at = (name: string) => path.join(place.workspace, name)
    await chmod(at('open'), 0o666)
    const refusals = [
      [at('missing'), 'cannot be read'],
      [place.workspace, 'is not a file'],
      [at('open'), 'can be written by other users'],
      [at('loads'), 'sets LD_PRELOAD'],
    ] as const
    for (const [file, why] of refusals) {
      const { code, stderr } = await place.run('serve', '--env-file', file)
      expect([code, stderr]).toEqual([2, expect.stringContaining(why)])
    }
    const { code, stderr } = await place.run('run', '--env-file', at('missing'), 'What is 1 + 1?')
    expect([code, stderr]).toEqual([2, expect.stringMatching(/--env-file .*missing.* cannot be read/)])
  })

  it('sets what the environment does not, and hostile values are refused with their name [S0.09]', async () => {
    const place = await cliPlace({}, { ENVIRONMENT: 'production' })
    const file = path.join(place.workspace, 'settings')
    const values = [
      ['PORT=99999', 'the port "99999"'],
      ['PORT=1e3', 'the port "1e3"'],
      ['PORT=0\nCORS_ORIGINS=*', 'CORS_ORIGINS "*"'],
      ['PORT=0\nCORS_ORIGINS=https://a.example/path', 'CORS_ORIGINS "https://a.example/path"'],
      ['PORT=0\nCORS_ORIGINS=https://user@a.example', 'CORS_ORIGINS "https://user@a.example"'],
      ['PORT=0\nCORS_ORIGINS=null', 'CORS_ORIGINS "null"'],
      ['PORT=0\nDEBUG=express:*', 'DEBUG "express:*"'],
      // The environment wins: it is production still.
      ['PORT=0\nENVIRONMENT=test\nDEBUG=true', 'DEBUG is for development, and ENVIRONMENT is production'],
    ] as const
    for (const [text, why] of values) {
      await writeFile(file, `${text}\n`)
      const { code, stderr } = await place.run('serve', '--env-file', file)
      expect([text, code, stderr]).toEqual([text, 2, expect.stringContaining(why)])
    }
    await writeFile(file, 'PORT=0\n')
    const open = await place.run('serve', '--env-file', file, '--no-token')
    expect([open.code, open.stderr]).toEqual([2, expect.stringContaining('--no-token is for development')])
  })

  it('is no option of Node, also where a link starts the program [S0.09]', async () => {
    const { workspace, env } = await cliPlace({})
    const link = path.join(workspace, 'caisson')
    await symlink(path.join(import.meta.dirname, '../../host/cli/bin.ts'), link)
    const own = { ...env, PATH: `${path.dirname(process.execPath)}:${env.PATH}` }
    const options = { env: { ...own, NODE_OPTIONS: '--conditions=caisson-source' } }
    for (const flag of [['--env-file=/nowhere'], ['--env-file', '/nowhere']]) {
      const ended = await promisify(execFile)('/bin/sh', [link, 'serve', ...flag], options).catch(
        (error: unknown) => error,
      )
      expect(ended).toMatchObject({
        code: 2,
        stderr: expect.stringMatching(/^[^\n]*--env-file "\/nowhere" cannot be read/),
      })
    }
  })

  it('starts the service as it says [S0.09]', async () => {
    const place = await cliPlace({ '.env': 'PORT=0\nCORS_ORIGINS=https://app.example.com\nDEBUG=1\n' })
    const served = place.start('serve', '--env-file', path.join(place.workspace, '.env'))
    const url = () => /listens on (http:\S+)/.exec(served.errors())?.[1]
    await expect.poll(url, { timeout: 60_000 }).toBeTruthy()
    const origin = 'https://app.example.com'
    const asked = { origin, 'access-control-request-method': 'POST' }
    const answer = await fetch(`${url()}/v1/runs`, { method: 'OPTIONS', headers: asked })
    expect([answer.status, answer.headers.get('access-control-allow-origin')]).toEqual([204, origin])
    expect((await fetch(`${url()}/v1/runs`, { headers: { origin } })).status).toBe(401)
    await expect.poll(() => served.errors()).toContain('"level":"debug"')
    served.child.kill('SIGTERM')
    expect((await served.ended).code).toBe(0)
  })
})

describe('a page of another origin', () => {
  it('gets an answer to its preflight request only when its origin is allowed exactly [H.02]', async () => {
    const origin = 'https://app.example.com'
    const { send } = await serveHost(await makeHost(), { origins: [origin] })
    const preflight = (from: string, more = {}) =>
      send('OPTIONS', '/api/v1/run-task', {
        headers: {
          authorization: undefined,
          origin: from,
          'access-control-request-method': 'POST',
          ...more,
        },
      })
    const { status, headers, text } = await preflight(origin)
    expect([status, text]).toEqual([204, ''])
    expect(headers).toMatchObject({
      'access-control-allow-origin': origin,
      'access-control-allow-headers': expect.stringContaining('authorization'),
      vary: 'origin',
    })
    expect(headers['access-control-allow-credentials']).toBeUndefined()
    for (const other of ['https://evil.example', `${origin}.evil.example`, `${origin}:444`, 'null']) {
      const refused = await preflight(other)
      expect([other, refused.status]).toEqual([other, 403])
      expect(refused.headers['access-control-allow-origin']).toBeUndefined()
    }
    expect((await preflight(origin, { host: 'evil.example' })).status).toBe(403)
  })
})

describe('a service without a token', () => {
  it('takes requests without one, and still checks Host and Origin [H.02]', async () => {
    const { send } = await serveHost(await makeHost(), { isOpen: true })
    const anonymous = { authorization: undefined }
    expect((await send('GET', '/v1/runs', { headers: anonymous })).status).toBe(200)
    for (const wrong of [{ host: 'evil.example' }, { origin: 'https://evil.example' }, { origin: 'null' }]) {
      const { status } = await send('POST', '/api/v1/run-task', {
        headers: { ...anonymous, 'content-type': 'application/json', ...wrong },
        body: '{"goal":"What is 1 + 1?"}',
      })
      expect([wrong, status]).toEqual([wrong, 403])
    }
    expect((await send('GET', '/v1/runs', { headers: anonymous })).json).toEqual({ runs: [] })
  })

  it('is refused where other machines reach it [H.02]', async () => {
    const host = await makeHost()
    for (const more of [{ address: '0.0.0.0' }, { address: '::' }, { hostNames: ['build.example.com'] }]) {
      const tls = { certFile: '/nowhere', keyFile: '/nowhere' }
      await expect(
        Service.start({ host, version: '0', port: 0, isOpen: true, tls, ...more }),
      ).rejects.toMatchObject({ code: 'invalid_options', message: expect.stringContaining('--no-token') })
    }
  })
})

describe('the compatible routes', () => {
  it('refuse a request that does not fit with the name of the field, and start nothing [S0.08 S4.02 S4.03]', async () => {
    const { send } = await serveHost(await makeHost())
    const post = (at: string, body: unknown) =>
      send('POST', at, { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) })
    const cases = [
      ['/run', { mode: 'agent', message: 'x' }, 'mode'],
      ['/run', { mode: 'chat' }, 'message'],
      ['/run', { mode: 'chat', message: 'x', context: [] }, 'context'],
      ['/api/v1/run-task', {}, 'goal'],
      ['/api/v1/run-task', { goal: 'x', context: {} }, 'context'],
      ['/api/v1/run-task', { goal: 'x', tools: 'math' }, 'tools'],
      ['/api/v1/run-task', { goal: 'x', tools: ['no_such_tool'] }, 'tools'],
    ] as const
    for (const [at, body, field] of cases) {
      const { status, json } = await post(at, body)
      expect([at, body, status, json]).toEqual([
        ...[at, body, 400],
        expect.objectContaining({ errors: expect.arrayContaining([expect.objectContaining({ field })]) }),
      ])
    }
    const wrong = await send('GET', '/api/v1/governance-notes/12')
    expect([wrong.status, wrong.json]).toMatchObject([400, { errors: [{ field: 'proposal' }] }])
    const none = await send('GET', '/api/v1/governance-notes/PROP-12')
    expect([none.status, none.json]).toEqual([200, { proposal_id: 'PROP-12', notes: [] }])
    expect((await send('GET', '/v1/runs')).json).toEqual({ runs: [] })
  })
})
