// Sign-ins to an MCP server with a real authorization server: each flow, renewal, rights, and what is stored where.
import { readdir, readFile, stat } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { testKeyring } from '../../host/test/support/keyring.ts'
import { json, machineSecret, OAuthWorld } from './oauth-world.ts'

const soon = () => AbortSignal.timeout(20_000)

/** All files below a folder. */
async function textsOf(folder: string): Promise<Map<string, string>> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const files = entries
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name))
  return new Map(await Promise.all(files.map(async (file) => [file, await readFile(file, 'utf8')] as const)))
}

describe('a sign-in', () => {
  it('in a browser gives a token that the server accepts, and that only its own file holds [A.09]', async () => {
    await using world = await OAuthWorld.open()
    const signIns = world.signIns()
    const record = await signIns.signIn(world.server(), world.person(), soon())
    expect(record).toMatchObject({ server: 'tracker', flow: 'code', hasRefreshToken: true, place: 'file' })
    expect(record.resource).toBe(world.mcpUrl)
    const token = await signIns.token(world.server())
    if (!token.ok) throw new Error(token.error)
    expect((await world.call(token.value.reveal())).status).toBe(200)
    const holders = [...(await textsOf(world.home))].filter(([, text]) => text.includes(token.value.reveal()))
    expect(holders.map(([file]) => path.basename(path.dirname(file)))).toEqual(['mcp-tokens'])
    const [[file = ''] = []] = holders
    expect((await stat(file)).mode & 0o777).toBe(0o600)
    expect((await stat(path.dirname(file))).mode & 0o777).toBe(0o700)
  })

  it('with a code on another device gives one too [A.09]', async () => {
    await using world = await OAuthWorld.open()
    const signIns = world.signIns()
    await signIns.signIn(world.server({ flow: 'device' }), world.person(), soon())
    const token = await signIns.token(world.server({ flow: 'device' }))
    expect(token.ok && (await world.call(token.value.reveal())).status).toBe(200)
  })

  it.each(['code', 'device'] as const)(
    'by %s says that it was stopped where its caller stops it [A.09]',
    async (flow) => {
      await using world = await OAuthWorld.open()
      const stop = new AbortController()
      const person = {
        openUrl: () => stop.abort(new Error('SIGINT')),
        showCode: () => stop.abort(new Error('SIGINT')),
      }
      const signing = world.signIns().signIn(world.server({ flow }), person, stop.signal)
      await expect(signing).rejects.toMatchObject({
        code: 'cancelled',
        message: 'the sign-in to tracker was stopped; start it again: caisson mcp login tracker',
      })
      expect(await world.signIns().records.list()).toEqual([])
    },
  )

  it('of a client needs no person [A.09]', async () => {
    await using world = await OAuthWorld.open()
    const oauth = {
      flow: 'client-credentials',
      clientId: 'machine',
      clientSecret: { env: 'SECRET' },
    } as const
    const token = await world.signIns().token(world.server(oauth))
    expect(token.ok && (await world.call(token.value.reveal())).status).toBe(200)
    for (const [, text] of await textsOf(world.home)) expect(text).not.toContain(machineSecret)
  })

  it('ends with its tokens revoked and removed [A.09]', async () => {
    await using world = await OAuthWorld.open()
    const signIns = world.signIns()
    const record = await signIns.signIn(world.server(), world.person(), soon())
    const token = await signIns.token(world.server())
    expect(await signIns.signOut(record, soon())).toBe(true)
    expect(token.ok && (await world.call(token.value.reveal())).status).toBe(401)
    expect(await signIns.token(world.server())).toEqual({
      ok: false,
      error:
        'the MCP server tracker needs a sign-in; the user signs in on the host: caisson mcp login tracker',
    })
    for (const [file] of await textsOf(world.home)) expect(file).not.toMatch(/mcp-tokens/)
  })

  it('of a client with a secret of the configuration is revoked by that client [A.09]', async () => {
    await using world = await OAuthWorld.open()
    const oauth = {
      flow: 'client-credentials',
      clientId: 'machine',
      clientSecret: { env: 'SECRET' },
    } as const
    const signIns = world.signIns()
    const token = await signIns.token(world.server(oauth))
    const [record] = await signIns.records.list()
    if (!token.ok || record === undefined) throw new Error('no sign-in')
    expect(await signIns.signOut(record, soon(), world.server(oauth))).toBe(true)
    expect((await world.call(token.value.reveal())).status).toBe(401)
  })

  it('stays listed while the keyring does not give its tokens away [A.09]', async () => {
    await using world = await OAuthWorld.open()
    const keyring = await testKeyring()
    const signIns = world.signIns({ path: keyring.PATH })
    const record = await signIns.signIn(world.server(), world.person(), soon())
    expect(record.place).toBe('keyring')
    await keyring.lock()
    await expect(signIns.signOut(record, soon())).rejects.toThrow('still has the key')
    expect(await keyring.kept(`mcp-${record.id}`)).toContain('accessToken')
    expect(await signIns.records.list()).toHaveLength(1)
  })

  it.each(['ended', 'replaced'] as const)('that is %s while it is renewed stays so [A.09]', async (how) => {
    await using world = await OAuthWorld.open()
    const signIns = world.signIns()
    const before = await signIns.signIn(world.server(), world.person(), soon())
    const held = holdFirst(world, '/token')
    const later = world.signIns({ now: () => Date.now() + 10 * 60_000 })
    const renewing = later.token(world.server())
    await held.arrived
    const ending =
      how === 'ended'
        ? signIns.signOut(before, soon())
        : signIns.signIn(world.server(), world.person(), soon())
    await Promise.race([ending, sleep(500)])
    held.release()
    const [, after] = await Promise.all([renewing, ending])
    const kept = await signIns.records.list()
    if (typeof after === 'object') expect(kept).toEqual([after])
    else expect(kept).toEqual([])
    const holders = [...(await textsOf(world.home)).keys()].filter((file) => file.includes('mcp-tokens'))
    expect(holders).toHaveLength(kept.length)
  })
})

/** Holds the first request of a path back, and answers it with tokens once it is released. */
function holdFirst(world: OAuthWorld, url: string) {
  const arrived = Promise.withResolvers<void>()
  const released = Promise.withResolvers<void>()
  world.issuerAnswer = (request, response) => {
    if (request.url !== url) return false
    world.issuerAnswer = undefined
    arrived.resolve()
    const tokens = { access_token: 'of-the-renewal', refresh_token: 'of-the-renewal', token_type: 'Bearer' }
    void released.promise.then(() => json(response, 200, tokens))
    return true
  }
  return { arrived: arrived.promise, release: released.resolve }
}

describe('a token', () => {
  it('that expires is renewed once, however many requests wait, also in several processes [A.09]', async () => {
    await using world = await OAuthWorld.open()
    await world.signIns().signIn(world.server(), world.person(), soon())
    world.asked.length = 0
    const later = () => Date.now() + 10 * 60_000
    const processes = [world.signIns({ now: later }), world.signIns({ now: later })]
    const tokens = await Promise.all(
      processes.flatMap((signIns) => Array.from({ length: 5 }, () => signIns.token(world.server()))),
    )
    const values = new Set(tokens.map((token) => token.ok && token.value.reveal()))
    expect(values.size).toBe(1)
    expect(values.has(false)).toBe(false)
    expect(world.asked).toEqual(['POST /token'])
  })

  it('that the server refuses is renewed, and one that it refuses again asks for a sign-in [A.09]', async () => {
    await using world = await OAuthWorld.open()
    const signIns = world.signIns()
    await signIns.signIn(world.server(), world.person(), soon())
    const first = await signIns.token(world.server())
    if (!first.ok) throw new Error(first.error)
    const header = 'Bearer error="invalid_token"'
    const next = () => signIns.refused(world.server(), 401, header, first.value.reveal())
    expect(await Promise.all([next(), next()])).toEqual(['renewed', 'renewed'])
    const second = await signIns.token(world.server())
    if (!second.ok) throw new Error(second.error)
    expect(second.value.reveal()).not.toBe(first.value.reveal())
    expect(await signIns.refused(world.server(), 401, header, second.value.reveal())).toEqual({
      words:
        'the MCP server tracker does not accept its token; the user signs in on the host: caisson mcp login tracker',
    })
  })

  it('whose renewal is refused ends the sign-in in words that name the command [A.09]', async () => {
    await using world = await OAuthWorld.open()
    await world.signIns().signIn(world.server(), world.person(), soon())
    world.issuerAnswer = (request, response) => {
      if (request.url !== '/token') return false
      response.writeHead(400, { 'content-type': 'application/json' })
      response.end('{"error":"invalid_grant","error_description":"gone"}')
      return true
    }
    const signIns = world.signIns({ now: () => Date.now() + 10 * 60_000 })
    for (let turn = 0; turn < 2; turn += 1)
      expect(await signIns.token(world.server())).toMatchObject({
        ok: false,
        error: expect.stringContaining('caisson mcp login tracker'),
      })
  })

  it('that lacks rights names them, and the next sign-in asks for them too [A.09]', async () => {
    await using world = await OAuthWorld.open()
    const signIns = world.signIns()
    await signIns.signIn(world.server(), world.person(), soon())
    const header = 'Bearer error="insufficient_scope", scope="write"'
    expect(await signIns.refused(world.server(), 403, header, 'any')).toEqual({
      words: expect.stringContaining('demands rights (write)'),
    })
    const again = await signIns.signIn(world.server(), world.person(), soon())
    expect(again.scope?.split(' ')).toEqual(expect.arrayContaining(['read', 'write']))
    expect(again.wanted).toBeUndefined()
  })
})
