// The receivers of examples/notify, installed by their lock: a real service, a real chat server, a real SMTP server.
import { spawn } from 'node:child_process'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest'
import { Secret } from '../../host/keys/secret.ts'
import { readWebhookSecret, signWebhook } from '../../host/notify/webhook-signature.ts'
import { runAtWork } from '../../host/test/support/run-at-work.ts'
import { InstalledExample } from '../support/installed-example.ts'
import { answerWith, noticeTimes, notifyingHost, receiveWebhooks, webhookSecret } from './notify-support.ts'
import { serveHost } from './support.ts'

const publicUrl = 'https://caisson.example.com'
const question = { question: 'Which <!channel> color? \u202e@everyone\nBcc: x@y.test', kind: 'text' } as const
let example: InstalledExample

beforeAll(async () => {
  example = await InstalledExample.install('notify')
})

afterAll(async () => await example[Symbol.asyncDispose]())

/** Call it from within a test. @returns its address, and what it printed */
async function startReceiver(program: string, env: Readonly<Record<string, string>>) {
  const child = spawn(process.execPath, [program], {
    cwd: example.folder,
    env: { ...process.env, WEBHOOK_SECRET: webhookSecret, PORT: '0', ...env },
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  let printed = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (piece) => (printed += String(piece)))
  const url = () => /Listens on (\S+)/.exec(printed)?.[1]
  await expect.poll(url, { timeout: 30_000 }).toBeTruthy()
  return { url: String(url()), printed: () => printed }
}

it.each([
  ['chat.ts', {}, 'Set the variable CHAT_URL.'],
  [
    'chat.ts',
    { CHAT_URL: 'http://127.0.0.1:1', CHAT_FORM: 'teams' },
    'CHAT_FORM is teams; expected one of slack,',
  ],
  [
    'chat.ts',
    { CHAT_URL: 'http://127.0.0.1:1', WEBHOOK_SECRET: 'abc' },
    'WEBHOOK_SECRET is not whsec_ and base64.',
  ],
  ['mail.ts', {}, 'Set the variable SMTP_URL.'],
])('%s with %o says in one line what to set [H.02]', async (program, env, expected) => {
  const child = spawn(process.execPath, [program], {
    cwd: example.folder,
    env: { PATH: process.env.PATH, WEBHOOK_SECRET: webhookSecret, PORT: '0', ...env },
  })
  const said = await text(child.stderr)
  expect(said).toContain(expected)
  expect(said.trim().split('\n')).toHaveLength(1)
})

/** Call it from within a test. @param url of the receiver */
async function askThrough(url: string) {
  const run = await runAtWork()
  const served = await serveHost(notifyingHost(run.env, url), { noticeTimes, publicUrl })
  void run.ask(question, 'q1')
  const isSent = () => served.logged.some(({ message }) => message === 'a question was delivered')
  return { served, isSent }
}

/** Call it from within a test. */
async function startMailServer(code?: number) {
  const { SMTPServer } = createRequire(path.join(example.folder, 'package.json'))('smtp-server') as {
    SMTPServer: new (options: object) => MailServer
  }
  const mails: string[] = []
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS'],
    onAuth: (
      { username, password }: Login,
      _session: unknown,
      done: (error: Error | null, user?: object) => void,
    ) => (password === 'pw-of-mail' ? done(null, { user: username }) : done(new Error('no'))),
    onData(stream: NodeJS.ReadableStream, _session: unknown, done: (error?: Error) => void) {
      void text(stream as never).then((mail) => {
        if (code !== undefined) return done(Object.assign(new Error('refused'), { responseCode: code }))
        mails.push(mail)
        done()
      })
    },
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => new Promise<void>((resolve) => server.close(resolve)))
  const { port } = server.server.address() as AddressInfo
  return { mails, url: `smtp://me:pw-of-mail@127.0.0.1:${port}/?ignoreTLS=true` }
}

interface Login {
  readonly username: string
  readonly password: string
}
interface MailServer {
  readonly server: { address(): unknown }
  listen(port: number, host: string, then: () => void): void
  close(then: () => void): void
}

it('compiles against the packages of its lock [H.02]', async () => {
  expect(await example.compile()).toBe('')
})

it.each([
  ['slack', 'Which &lt;!channel&gt; color?'],
  ['discord', 'Which \\<!channel\\> color?'],
  ['matrix', 'Which <!channel> color?'],
])(
  'posts a question to a chat of the form %s once, with the link that answers it [H.02]',
  async (form, shown) => {
    const chat = await receiveWebhooks(answerWith(503, 200))
    const receiver = await startReceiver('chat.ts', { CHAT_URL: `${chat.url}/T0-secret`, CHAT_FORM: form })
    const { isSent } = await askThrough(receiver.url)
    await expect.poll(isSent, { timeout: 20_000 }).toBe(true)
    expect(chat.got).toHaveLength(2)
    const message = JSON.parse(chat.got[1]?.body ?? '') as Record<string, string>
    const said = String(message.text ?? message.content)
    expect(said).toContain(shown)
    expect(said).toContain(`${publicUrl}/answer#caisson-link_`)
    expect(said).toContain('The agent wrote this text')
    expect(said).not.toContain('\u202e')
    if (form === 'discord') expect(message).toMatchObject({ allowed_mentions: { parse: [] } })
    for (const secret of ['T0-secret', webhookSecret, 'caisson-link_'])
      expect(receiver.printed()).not.toContain(secret)
  },
)

it('sends a question by e-mail as plain text with the link that answers it [H.02]', async () => {
  const { mails, url } = await startMailServer()
  const env = { SMTP_URL: url, MAIL_FROM: 'caisson@example.com', MAIL_TO: 'ops@example.com' }
  const receiver = await startReceiver('mail.ts', env)
  const { isSent } = await askThrough(receiver.url)
  await expect.poll(isSent, { timeout: 20_000 }).toBe(true)
  expect(mails).toHaveLength(1)
  const [head = '', body = ''] = (mails[0] ?? '').split('\r\n\r\n', 2)
  expect(head).toMatch(/^To: ops@example.com$/m)
  expect(head).toMatch(/^Subject: Caisson: The agent asks you$/m)
  expect(head).toMatch(/^Content-Type: text\/plain; charset=utf-8$/m)
  expect(head).not.toMatch(/^bcc:/im)
  expect(body).not.toBe('')
  expect(decode(mails[0] ?? '')).toContain(`${publicUrl}/answer#caisson-link_`)
  for (const secret of ['pw-of-mail', webhookSecret])
    expect(receiver.printed() + mails[0]).not.toContain(secret)
})

it.each([
  [451, 503],
  [554, 422],
])(
  'says whether a mail that the server refused with %i will be tried again [H.02]',
  async (code, expected) => {
    const { mails, url } = await startMailServer(code)
    const env = { SMTP_URL: url, MAIL_FROM: 'caisson@example.com', MAIL_TO: 'ops@example.com' }
    const receiver = await startReceiver('mail.ts', env)
    expect(await post(receiver.url, signed(messageOf('q1')))).toBe(expected)
    expect(mails).toEqual([])
    expect(receiver.printed()).toContain(`the mail server answered ${code}`)
    expect(receiver.printed()).not.toContain('pw-of-mail')
  },
)

it('takes no message that is unsigned, changed, old or too large, and one with the same id once [H.02]', async () => {
  const chat = await receiveWebhooks(answerWith(200))
  const receiver = await startReceiver('chat.ts', { CHAT_URL: chat.url })
  const given = signed(messageOf('q1'))
  const { 'webhook-signature': _, ...unsigned } = given.headers
  expect(await post(receiver.url, { ...given, headers: unsigned })).toBe(401)
  expect(await post(receiver.url, { ...given, body: messageOf('q2') })).toBe(401)
  expect(await post(receiver.url, signed(messageOf('q1'), Date.now() - 600_000))).toBe(401)
  expect(await post(receiver.url, signed(messageOf('q1', 'x'.repeat(100_000))))).toBe(413)
  expect(await post(receiver.url, signed('{"type":"later.type","data":{}}'))).toBe(204)
  expect(chat.got).toEqual([])
  expect(await Promise.all([post(receiver.url, given), post(receiver.url, given)])).toEqual([204, 204])
  expect(await post(receiver.url, given)).toBe(204)
  expect(chat.got).toHaveLength(1)
  // Without a link it names the command.
  expect(chat.got[0]?.body).toContain('caisson attach run-1')
})

function messageOf(questionId: string, words = 'Which color?'): string {
  const data = {
    runId: 'run-1',
    questionId,
    kind: 'question',
    title: 'A question',
    text: words,
    digest: '0',
    isClaim: false,
  }
  return JSON.stringify({ type: 'question.waiting', timestamp: new Date().toISOString(), data })
}

function signed(body: string, at = Date.now()) {
  const key = readWebhookSecret(new Secret(webhookSecret))
  if (!key.ok) throw new Error(key.error)
  return { body, headers: signWebhook(key.value, 'msg-1', at, body) }
}

async function post(
  url: string,
  { body, headers }: { body: string; headers: Record<string, string> },
): Promise<number> {
  return (await fetch(url, { method: 'POST', body, headers })).status
}

/** Of quoted-printable or base64. */
function decode(mail: string): string {
  const [head = '', ...rest] = mail.split('\r\n\r\n')
  const body = rest.join('\r\n\r\n')
  if (/^content-transfer-encoding: base64/im.test(head)) return Buffer.from(body, 'base64').toString('utf8')
  const joined = body.replaceAll('=\r\n', '')
  return joined.replaceAll(/=([0-9A-F]{2})/g, (_, hex: string) =>
    String.fromCharCode(Number.parseInt(hex, 16)),
  )
}
