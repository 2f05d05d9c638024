// The programs of examples/engines, installed by their lock, fit the SDKs; the one for Restate runs on a real Restate server.
import { type ChildProcess, spawn } from 'node:child_process'
import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import { appendFile, readFile, writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { InstalledExample } from '../support/installed-example.ts'
import { webhookSecret } from './notify-support.ts'
import { hostOfHeldRuns } from './queue-support.ts'
import { serveHost } from './support.ts'

let example: InstalledExample

beforeAll(async () => {
  example = await InstalledExample.install('engines')
}, 120_000)

afterAll(async () => await example[Symbol.asyncDispose]())

it('compiles the steps against the SDKs of Restate, Temporal and Trigger.dev, and notices one that does not fit [S4.13]', async () => {
  expect(await example.compile()).toBe('')
  const wrong: readonly (readonly [string, string])[] = [
    ['restate.ts', "\nawait client.call('putRun', { params: { key: 1 }, body: { prompt: 'x' } })\n"],
    ['temporal-workflow.ts', '\nawait takePatch(1)\n'],
    ['trigger-dev.ts', '\nawait carryOutTask.trigger({ prompt: 1 })\n'],
  ]
  const before = new Map<string, string>()
  for (const [file, line] of wrong) {
    const place = path.join(example.folder, file)
    before.set(place, await readFile(place, 'utf8'))
    await appendFile(place, line)
  }
  const problems = await example.compile()
  for (const [file] of wrong) expect(problems).toMatch(new RegExp(`^${file}.* not assignable to `, 'm'))
  for (const [place, source] of before) await writeFile(place, source)
})

/** A Restate server on ports of its own. Call it from within a test. */
async function startRestate(): Promise<{ readonly ingress: string; readonly admin: string }> {
  const folder = await temporaryFolder('restate')
  const program = path.join(
    example.folder,
    'node_modules/@restatedev/restate-server-linux-x64/bin/restate-server',
  )
  const options = ['--no-logo', '--base-dir', folder, '--node-name', 'test', '--bind-ip', '127.0.0.1']
  const server = spawn(program, [...options, '--listen-mode', 'tcp', '--use-random-ports', 'true'], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      HOME: folder,
      RESTATE_LOG_FORMAT: 'json',
      RESTATE_ROCKSDB_TOTAL_MEMORY_SIZE: '128MB',
      RESTATE_DISABLE_TELEMETRY: 'true',
      DO_NOT_TRACK: '1',
      // It looks for newer versions at GitHub, which no setting turns off.
      HTTPS_PROXY: 'http://127.0.0.1:9',
    },
  })
  onTestFinished(() => endProcess(server))
  let log = ''
  server.stdout.on('data', (part: Buffer) => (log += part.toString()))
  const portOf = (name: string) => new RegExp(`"server.port":(\\d+),"server_name":"${name}"`).exec(log)?.[1]
  await expect.poll(() => portOf('http-ingress-server'), { timeout: 30_000 }).toBeTruthy()
  await expect.poll(() => portOf('admin-api-server'), { timeout: 30_000 }).toBeTruthy()
  const place = (name: string) => `http://127.0.0.1:${portOf(name)}`
  const admin = place('admin-api-server')
  const isReady = async () => (await fetch(`${admin}/health`).catch(() => undefined))?.ok
  await expect.poll(isReady, { timeout: 30_000 }).toBe(true)
  return { ingress: place('http-ingress-server'), admin }
}

async function endProcess(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const closed = once(child, 'close')
  child.kill('SIGKILL')
  await closed
}

/** The program for Restate as a process of its own, until it is killed. */
async function startSteps(env: Readonly<Record<string, string>>): Promise<ChildProcess> {
  const child = spawn(process.execPath, ['--conditions=caisson-source', 'restate.ts'], {
    cwd: example.folder,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { PATH: process.env.PATH, ...env },
  })
  onTestFinished(() => endProcess(child))
  let said = ''
  for (const output of [child.stdout, child.stderr])
    output?.on('data', (part: Buffer) => (said += part.toString()))
  await expect.poll(() => said, { timeout: 30_000 }).toContain('listening')
  return child
}

/** An HTTP server of the test. Call it from within a test. */
async function listen(
  answer: (request: IncomingMessage, response: ServerResponse) => Promise<void>,
): Promise<string> {
  const server = createServer((request, response) => {
    answer(request, response).catch(() => response.destroy())
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.close()
    server.closeAllConnections()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

async function freePort(): Promise<string> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  await new Promise((resolve) => server.close(resolve))
  return String(port)
}

it('a step of Restate whose process is killed between start and answer, and again while it waits, has one run [S4.13]', async () => {
  const { ingress, admin } = await startRestate()
  const hook = { url: `${ingress}/caisson/webhook`, secret: { env: 'HOOK' }, local: true }
  const events = ['question.waiting' as const, 'run.ended' as const]
  const { host, held } = await hostOfHeldRuns('restate', {
    env: { HOOK: webhookSecret },
    config: { notify: { afterMs: 0, webhooks: { restate: { ...hook, events } } } },
  })
  const { service, token, client, logged } = await serveHost(host, {
    noticeTimes: { pollMs: 50, pauseMinMs: 50 },
  })
  let steps: ChildProcess | undefined
  const puts: { key: string; status: number }[] = []
  // Between the steps and the service: the first start is carried out, and its answer is lost with who waits for it.
  const proxy = await listen(async (request, response) => {
    const { method = '', url = '', headers } = request
    const sent = await text(request)
    const answer = await fetch(new URL(url, service.url), {
      method,
      headers: { authorization: headers.authorization ?? '', 'content-type': 'application/json' },
      ...(sent === '' ? {} : { body: sent }),
    })
    const body = await answer.text()
    if (method === 'PUT') puts.push({ key: url.slice('/v1/runs/'.length), status: answer.status })
    if (method === 'PUT' && puts.length === 1) steps?.kill('SIGKILL')
    else response.writeHead(answer.status, { 'content-type': 'application/json' }).end(body)
  })
  const told: string[] = []
  const chat = await listen(async (request, response) => {
    told.push((JSON.parse(await text(request)) as { text: string }).text)
    response.end()
  })
  const env = {
    ...{ CAISSON_URL: proxy, CAISSON_TOKEN: token, CAISSON_HOOK_SECRET: webhookSecret },
    ...{ CHAT_URL: chat, PORT: await freePort() },
  }
  steps = await startSteps(env)
  const json = { 'content-type': 'application/json' }
  const uri = `http://127.0.0.1:${env.PORT}`
  const registered = await fetch(`${admin}/deployments`, {
    method: 'POST',
    headers: json,
    body: JSON.stringify({ uri }),
  })
  expect([registered.status, await registered.text()]).toMatchObject([201, expect.stringContaining('agent')])

  const sent = await fetch(`${ingress}/agent/run/send`, {
    method: 'POST',
    headers: json,
    body: '{"prompt":"x"}',
  })
  const { invocationId } = (await sent.json()) as { invocationId: string }
  await expect.poll(() => steps?.signalCode, { timeout: 20_000 }).toBe('SIGKILL')
  steps = await startSteps(env)
  await expect
    .poll(() => puts, { timeout: 30_000 })
    .toEqual([
      { key: invocationId, status: 201 },
      { key: invocationId, status: 200 },
    ])
  const [runId, ...others] = await host.runs.ids()
  expect(others).toEqual([])

  // A question of the run reaches a person with its link; what others send is refused.
  const question = {
    type: 'question.waiting',
    timestamp: new Date().toISOString(),
    data: {
      ...{ runId, questionId: 'q1', kind: 'call', title: 'Allow delete_file?', text: 'delete a.txt' },
      ...{ digest: 'a'.repeat(64), isClaim: true, link: 'https://caisson.example.com/answer#x' },
    },
  }
  expect((await deliver(hook.url, question, webhookSecret)).status).toBe(200)
  expect(told).toEqual(['Allow delete_file? delete a.txt\nhttps://caisson.example.com/answer#x'])
  const other = `whsec_${Buffer.alloc(32, 8).toString('base64')}`
  expect((await deliver(hook.url, question, other)).status).toBe(401)

  await endProcess(steps)
  await held.release()
  await expect
    .poll(async () => (await client.call('getRun', { params: { run: invocationId } })).end)
    .not.toBeNull()
  steps = await startSteps(env)
  const ended = await fetch(`${ingress}/restate/invocation/${invocationId}/attach`)
  expect([ended.status, await ended.text()]).toEqual([500, expect.stringContaining(`${runId} failed: `)])
  expect(await host.runs.ids()).toEqual([runId])
  expect(await held.begun()).toEqual([runId])
  expect(told).toHaveLength(1)
  expect(puts).toHaveLength(2)
  expect(logged.filter(({ level }) => level === 'error')).toEqual([])
}, 85_000)

/** Sends a message as the service signs it. */
async function deliver(url: string, message: unknown, secret: string): Promise<Response> {
  const body = JSON.stringify(message)
  const [id, at] = ['msg_of_the_test', Math.floor(Date.now() / 1_000)]
  const key = Buffer.from(secret.slice('whsec_'.length), 'base64')
  const signature = createHmac('sha256', key).update(`${id}.${at}.${body}`).digest('base64')
  const headers = {
    ...{ 'content-type': 'application/json', 'webhook-id': id, 'webhook-timestamp': `${at}` },
    'webhook-signature': `v1,${signature}`,
  }
  return await fetch(url, { method: 'POST', headers, body })
}
