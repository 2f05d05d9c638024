// Messages to browsers: encrypted, signed, for those who may answer. A real push service and runs, no VM.
import { createECDH } from 'node:crypto'
import { readFile, stat } from 'node:fs/promises'
import path from 'node:path'
import { importJWK, jwtVerify } from 'jose'
import { expect, it } from 'vitest'
import { Host } from '../../host/index.ts'
import { encryptPush } from '../../host/notify/web-push.ts'
import { runAtWork } from '../../host/test/support/run-at-work.ts'
import { runId } from '../../host/test/support/run-values.ts'
import { type Holder, holderOf, startOf } from './keys-support.ts'
import { noticeTimes } from './notify-support.ts'
import { makeBrowser, servePush } from './push-service.ts'
import { serveHost } from './support.ts'

const question = { question: 'Which color?', kind: 'text' } as const
const publicUrl = 'https://caisson.example.com'

async function servePushing(config: { readonly localPush?: boolean } = { localPush: true }) {
  const run = await runAtWork()
  const host = new Host({ env: run.env, config: { notify: { afterMs: 0, ...config } } })
  const served = await serveHost(host, { noticeTimes, publicUrl })
  return { run, host, ...served }
}

const add = async ({ send }: Holder, subscription: object) => await send('POST', '/v1/push', subscription)

it('a browser gets a question once, encrypted for it and signed by the service [H.02]', async () => {
  const { run, client, logged, service, host } = await servePushing()
  const push = await servePush()
  const browser = makeBrowser(`${push.url}/push/secret-path`)
  const { publicKey } = await client.call('getPushKey', {})
  await client.call('addPushSubscription', { body: browser.subscription })
  // Again, as each time that the page is opened.
  await client.call('addPushSubscription', { body: browser.subscription })
  void run.ask(question, 'q1')
  await expect.poll(() => logged.some(({ message }) => message === 'a question was delivered')).toBe(true)
  const [pushed] = push.got
  if (pushed === undefined) throw new Error('nothing was pushed')
  expect(pushed.body.toString('latin1')).not.toContain('color')
  const message = JSON.parse(browser.decrypt(pushed.body)) as Record<string, string>
  expect(message).toMatchObject({ title: 'The agent asks you', text: 'Which color?', runId })
  expect(message.link).toMatch(/^#caisson-link_[\w-]+\.[\w-]+$/)
  expect(pushed.headers).toMatchObject({
    ...{ 'content-encoding': 'aes128gcm', urgency: 'high', topic: message.tag, ttl: '86400' },
  })
  // By jose, from the words of RFC 8292.
  const [, token = '', key = ''] =
    /^vapid t=([^,]+), k=(.+)$/.exec(String(pushed.headers.authorization)) ?? []
  expect(key).toBe(publicKey)
  const point = Buffer.from(key, 'base64url')
  const x = point.subarray(1, 33).toString('base64url')
  const y = point.subarray(33).toString('base64url')
  const jwk = await importJWK({ kty: 'EC', crv: 'P-256', x, y }, 'ES256')
  const { payload } = await jwtVerify(token, jwk, { audience: push.url })
  expect(payload).toMatchObject({ sub: publicUrl })
  expect(Number(payload.exp) - Date.now() / 1_000).toBeLessThan(86_400)
  // A later service has the same key and browsers, and repeats nothing.
  await service.close()
  const folder = path.join(String(run.env.CAISSON_HOME), 'service')
  for (const file of ['push-key', 'push.json'])
    expect((await stat(path.join(folder, file))).mode & 0o777).toBe(0o600)
  const secret = (await readFile(path.join(folder, 'push-key'), 'utf8')).trim()
  const again = await serveHost(host, { noticeTimes, publicUrl })
  expect(await again.client.call('getPushKey', {})).toEqual({ publicKey })
  void run.ask(question, 'q2')
  await expect.poll(() => push.got.length).toBe(2)
  const said = JSON.stringify([logged, again.logged])
  expect(said).not.toContain('secret-path')
  expect(said).not.toContain(secret)
})

it('a person hears only of questions that they may answer, and nothing once their key is revoked [H.02]', async () => {
  const { run, host, logged, ...served } = await servePushing()
  const push = await servePush()
  const owner = await holderOf(host, { ...served }, 'owner')
  const other = await holderOf(host, { ...served }, 'other')
  const admin = await holderOf(host, { ...served }, 'boss', { scopes: ['admin'] })
  const reader = await holderOf(host, { ...served }, 'reader', { scopes: ['read', 'run'] })
  await run.record.host(startOf(owner.metadata))
  const subscribe = async (holder: Holder, name: string) =>
    (await add(holder, makeBrowser(`${push.url}/${name}`).subscription)).status
  expect(await subscribe(owner, 'owner')).toBe(200)
  expect(await subscribe(other, 'other')).toBe(200)
  expect(await subscribe(admin, 'boss')).toBe(200)
  expect(await subscribe(reader, 'reader')).toBe(403)
  void run.ask(question, 'q1')
  const paths = () => push.got.map((pushed) => pushed.path).toSorted()
  await expect.poll(paths).toEqual(['/boss', '/owner'])
  await host.apiKeys.revoke(owner.key.id)
  void run.ask(question, 'q2')
  await expect.poll(paths).toEqual(['/boss', '/boss', '/owner'])
  const stored = await readFile(path.join(String(run.env.CAISSON_HOME), 'service', 'push.json'), 'utf8')
  expect(stored).not.toContain('/owner"')
  expect(stored).toContain('/other"')
  expect(logged.some(({ level }) => level === 'error')).toBe(false)
})

it('a person turns the messages to a browser off, and not those to a browser of somebody else [H.02]', async () => {
  const { run, host, client, ...served } = await servePushing()
  const push = await servePush()
  const mine = await holderOf(host, { ...served }, 'mine', { scopes: ['admin'] })
  const other = await holderOf(host, { ...served }, 'other', { scopes: ['admin'] })
  const { json } = await add(mine, makeBrowser(`${push.url}/mine`).subscription)
  const { id } = json as { id: string }
  const owners = await client.call('addPushSubscription', {
    body: makeBrowser(`${push.url}/owner`).subscription,
  })
  const remove = async ({ send }: Holder, browser: string) =>
    (await send('DELETE', `/v1/push/${browser}`)).status
  expect(await remove(other, id)).toBe(404)
  expect(await remove(mine, owners.id)).toBe(404)
  expect(await remove(mine, 'x')).toBe(400)
  expect(await remove(mine, id)).toBe(204)
  expect(await remove(mine, id)).toBe(404)
  void run.ask(question, 'q1')
  await expect.poll(() => push.got.map((pushed) => pushed.path)).toEqual(['/owner'])
  await client.call('removePushSubscription', { params: { browser: owners.id } })
  const stored = path.join(String(run.env.CAISSON_HOME), 'service', 'push.json')
  expect(await readFile(stored, 'utf8')).toBe('{"subscriptions":[]}')
})

it.each([404, 410])('a browser that unsubscribed is forgotten (%i) [H.02]', async (status) => {
  const { run, client } = await servePushing()
  const push = await servePush(() => status)
  await client.call('addPushSubscription', { body: makeBrowser(`${push.url}/gone`).subscription })
  void run.ask(question, 'q1')
  const stored = path.join(String(run.env.CAISSON_HOME), 'service', 'push.json')
  await expect.poll(() => readFile(stored, 'utf8')).toBe('{"subscriptions":[]}')
  expect(push.got).toHaveLength(1)
})

it('a push service on this machine needs a word of the user, and hostile subscriptions are refused or dropped [H.02]', async () => {
  const { run, client, logged, send } = await servePushing({})
  const push = await servePush()
  // A name: what it leads to is judged with each delivery.
  const { subscription } = makeBrowser(`${push.url.replace('127.0.0.1', 'localhost')}/local`)
  const headers = { 'content-type': 'application/json' }
  for (const wrong of [
    { ...subscription, endpoint: 'file:///etc/passwd' },
    { ...subscription, endpoint: `https://a.example/${'a'.repeat(3_000)}` },
    { ...subscription, keys: { ...subscription.keys, auth: 'short' } },
    { ...subscription, owner: null },
  ])
    expect((await send('POST', '/v1/push', { headers, body: JSON.stringify(wrong) })).status).toBe(400)
  // More than a person has browsers: the oldest are forgotten.
  for (let count = 0; count < 25; count += 1)
    await client.call('addPushSubscription', {
      body: { ...subscription, endpoint: `https://localhost:9/${count}` },
    })
  // No point of the curve.
  const body = { ...subscription, keys: { ...subscription.keys, p256dh: 'A'.repeat(87) } }
  await client.call('addPushSubscription', { body })
  const stored = path.join(String(run.env.CAISSON_HOME), 'service', 'push.json')
  const { subscriptions } = JSON.parse(await readFile(stored, 'utf8')) as { subscriptions: unknown[] }
  expect(subscriptions).toHaveLength(20)
  void run.ask(question, 'q1')
  await expect.poll(() => readFile(stored, 'utf8')).not.toContain('AAAAAAAA')
  await expect
    .poll(() => logged.map(({ cause }) => String(cause)).join())
    .toContain('this machine (loopback); allow it with notify.localPush = true')
  expect(push.got).toHaveLength(0)
})

it('an endpoint at an address that no message may go to is refused at once, in any spelling [H.02]', async () => {
  const { send } = await servePushing({})
  const { subscription } = makeBrowser('https://push.example/1')
  const headers = { 'content-type': 'application/json' }
  const subscribe = async (endpoint: string) =>
    await send('POST', '/v1/push', { headers, body: JSON.stringify({ ...subscription, endpoint }) })
  for (const host of [
    '127.0.0.1:9',
    '2130706433',
    '[::1]',
    '[::ffff:10.0.0.1]',
    '169.254.169.254',
    '192.168.0.1',
  ]) {
    const { status, json } = await subscribe(`https://${host}/1`)
    expect([host, status, json]).toEqual([
      ...[host, 400],
      expect.objectContaining({
        code: 'invalid_request',
        errors: [
          {
            field: 'endpoint',
            message: expect.stringMatching(/belongs to .+; allow it with notify\.localPush/),
          },
        ],
      }),
    ])
  }
  expect((await subscribe('http://8.8.8.8/1')).status).toBe(400)
  expect((await subscribe('https://user:word@push.example/1')).status).toBe(400)
  expect((await subscribe('https://8.8.8.8/1')).status).toBe(200)
})

it('encryption is that of the example in RFC 8291 [H.02]', () => {
  const ecdh = createECDH('prime256v1')
  ecdh.setPrivateKey(Buffer.from('yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw', 'base64url'))
  const keys = {
    p256dh: 'BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4',
    auth: 'BTBZMqHH6r4Tts7J_aSIgg',
  }
  const salt = Buffer.from('DGv6ra1nlYgDCS1FRnbzlw', 'base64url')
  const body = encryptPush(Buffer.from('When I grow up, I want to be a watermelon'), keys, { ecdh, salt })
  expect(body.toString('base64url')).toBe(
    'DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN',
  )
  expect(() => encryptPush(Buffer.alloc(4_080), keys)).toThrow(RangeError)
})
