// The connection of the extension to services of real HTTP servers. VS Code itself is the few functions that it calls.
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { beforeEach, expect, it, onTestFinished, vi } from 'vitest'

const editor = vi.hoisted(() => ({
  service: '',
  onSettings: (_: { affectsConfiguration: () => boolean }): void => undefined,
}))

vi.mock('vscode', () => ({
  EventEmitter: class {
    readonly event = () => ({ dispose: () => undefined })
    fire(): void {}
    dispose(): void {}
  },
  commands: { executeCommand: async () => undefined },
  workspace: {
    getConfiguration: () => ({ get: () => editor.service }),
    onDidChangeConfiguration: (listener: typeof editor.onSettings) => {
      editor.onSettings = listener
      return { dispose: () => undefined }
    },
  },
}))

const { Session } = await import('../session/session.ts')
type Session = InstanceType<typeof Session>

let secrets: Map<string, string>
let session: Session

beforeEach(() => {
  secrets = new Map()
  const storage = {
    get: async (name: string) => secrets.get(name),
    store: async (name: string, value: string) => void secrets.set(name, value),
    delete: async (name: string) => void secrets.delete(name),
  }
  session = new Session(storage as unknown as ConstructorParameters<typeof Session>[0], '1')
  return () => session.dispose()
})

/** A service that takes one token. @param hold what its answers wait for */
async function openService(token: string, hold: Promise<void> = Promise.resolve()) {
  const tokens: string[] = []
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    const given = request.headers.authorization ?? ''
    tokens.push(given)
    await hold
    const isTaken = given === `Bearer ${token}`
    response.writeHead(isTaken ? 200 : 401, {
      'content-type': isTaken ? 'application/json' : 'application/problem+json',
    })
    response.end(
      JSON.stringify(
        isTaken
          ? { runs: [] }
          : {
              type: 'about:blank',
              title: 'Unauthorized',
              status: 401,
              detail: 'no',
              code: 'permission_denied',
            },
      ),
    )
  }
  const server = createServer((request, response) => void answer(request, response))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, tokens }
}

function choose(url: string): void {
  editor.service = url
  editor.onSettings({ affectsConfiguration: () => true })
}

it('a token is sent to the service that it was typed for, whatever the settings say by then', async () => {
  const [first, second] = [await openService('one'), await openService('two')]
  choose(first.url)
  await session.connect()
  const asked = session.signInAddress
  choose(second.url)
  await session.signIn('one', asked ?? '')
  expect(second.tokens).toEqual([])
  expect([...secrets]).toEqual([[`token ${first.url}`, 'one']])
})

it('a sign-out counts also while the extension connects', async () => {
  const answered = Promise.withResolvers<void>()
  const { url, tokens } = await openService('one', answered.promise)
  choose(url)
  secrets.set(`token ${url}`, 'one')
  const connecting = session.connect()
  await expect.poll(() => tokens).toEqual(['Bearer one'])
  await session.signOut()
  answered.resolve()
  expect(await connecting).toBeUndefined()
  await session.connect()
  expect([session.access, tokens.at(-1)]).toEqual(['signed-out', ''])
})

it('another address counts also while the extension connects to the one before', async () => {
  const answered = Promise.withResolvers<void>()
  const [first, second] = [await openService('one', answered.promise), await openService('two')]
  secrets.set(`token ${first.url}`, 'one').set(`token ${second.url}`, 'two')
  choose(first.url)
  const connecting = session.connect()
  await expect.poll(() => first.tokens).toHaveLength(1)
  choose(second.url)
  answered.resolve()
  expect(await connecting).toBeUndefined()
  expect(await session.connect()).toBeDefined()
  expect([session.address, session.access]).toEqual([second.url, 'ready'])
})

it('what a person cannot do now says nothing about the service', async () => {
  const { url } = await openService('one')
  secrets.set(`token ${url}`, 'one')
  choose(url)
  await session.connect()
  expect(session.note(new Error('Open a change of a run first.'))).toBe('Open a change of a run first.')
  expect(session.access).toBe('ready')
  expect(session.note(new TypeError('fetch failed'))).toMatch(/does not answer/)
  expect(session.access).toBe('unreachable')
})
