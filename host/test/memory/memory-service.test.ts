// What a run's agents may read of memory and propose to it, by the gateway's own paths.

import { mkdir } from 'node:fs/promises'
import http2 from 'node:http2'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { HostEvent } from '#specs/protocol/event.ts'
import type { MemoryNote } from '#specs/protocol/extension.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { createGateway } from '../../gateway/gateway.ts'
import { serveMemory } from '../../gateway/serve-tools.ts'
import { MemoryService, notesForTask, proposalsMaxCount } from '../../memory/memory-service.ts'
import { noteMaxChars, type StoredNote } from '../../memory/note-storage.ts'
import { NoteStore } from '../../memory/note-store.ts'
import { offlineProvider } from '../../providers/providers.ts'
import { readAnswer } from '../support/gateway.ts'

const runId = 'run-00000000000000000001'

function kept(number: number, text: string, tags: string[] = []): StoredNote {
  const noteId = `mem-${number.toString(16).padStart(12, '0')}`
  return { kind: 'memory', noteId, workspace: '/w', text, tags, at: number }
}

async function open(notes: readonly StoredNote[] = []) {
  const home = await temporaryFolder('memory-service')
  const locks = path.join(home, 'locks')
  await mkdir(locks)
  const store = new NoteStore({ home, locks })
  await store.change(() => notes)
  const events: HostEvent[] = []
  const memory = new MemoryService({
    store,
    runId,
    workspace: '/w',
    note: (event) => void events.push(event),
    redact: (text) => text.replaceAll('s3cr3t', '[redacted]'),
    now: () => 7,
  })
  return { store, memory, events }
}

const say = (text: string, more: { tags?: string[]; replaces?: string } = {}) => ({
  text,
  tags: more.tags ?? [],
  agentPath: 'root',
  ...(more.replaces === undefined ? {} : { replaces: more.replaces }),
})

function noteOf(answer: Awaited<ReturnType<MemoryService['remember']>>): MemoryNote {
  if (!answer.ok) throw new Error(answer.error.message)
  return answer.value.note
}

describe('the memory of a run', () => {
  it('holds what is kept, the newest first, and what the run itself proposes; the host keeps nothing [S0.13]', async () => {
    const { store, memory, events } = await open([kept(1, 'old'), kept(2, 'new')])
    const mine = noteOf(await memory.remember(say('Build with make all', { tags: ['build'] })))
    expect(mine.state).toBe('proposed')
    const recalled = await memory.recall({ limit: 10 })
    expect(recalled.ok && recalled.value.notes.map(({ text, state }) => [text, state])).toEqual([
      ['Build with make all', 'proposed'],
      ['new', 'kept'],
      ['old', 'kept'],
    ])
    expect(events).toEqual([{ type: 'memory-propose', agentPath: 'root', note: mine }])
    expect(await store.list()).toHaveLength(2)
  })

  it('finds notes by words, the rarer the better, the same each time [S0.13]', async () => {
    const { memory } = await open([
      kept(1, 'The tests need a database'),
      kept(2, 'Deploys happen on Friday', ['deploy']),
      kept(3, 'The database is Postgres 16'),
      kept(4, 'Über Größe: naïve café'),
    ])
    const find = async (query: string) => {
      const found = await memory.recall({ query, limit: 2 })
      return found.ok ? [found.value.notes.map(({ text }) => text), found.value.total] : []
    }
    expect(await find('postgres database')).toEqual([
      ['The database is Postgres 16', 'The tests need a database'],
      2,
    ])
    expect(await find('deployment')).toEqual([['Deploys happen on Friday'], 1])
    expect(await find('größe')).toEqual([['Über Größe: naïve café'], 1])
    expect(await find('nothing of this kind')).toEqual([[], 0])
    expect(await find('.*+?^(){}|[]\\')).toEqual([
      ['Über Größe: naïve café', 'The database is Postgres 16'],
      4,
    ])
  })

  it('takes the same note once, and lets one stand in the place of another [S0.13]', async () => {
    const { memory, events } = await open([kept(1, 'Port 80')])
    const first = noteOf(await memory.remember(say('Port 81', { replaces: 'mem-000000000001' })))
    expect(noteOf(await memory.remember(say('Port 81'))).noteId).toBe(first.noteId)
    const second = noteOf(await memory.remember(say('Port 82', { replaces: first.noteId })))
    const recalled = await memory.recall({ limit: 10 })
    expect(recalled.ok && recalled.value.notes).toEqual([second])
    expect(events).toHaveLength(2)
    expect(await memory.remember(say('Port 83', { replaces: 'mem-ffffffffffff' }))).toMatchObject({
      error: { code: 'not_found' },
    })
  })

  it('refuses what looks like a secret, and journals none that is known [S0.13]', async () => {
    const { memory, events } = await open()
    for (const text of [
      'the key is nvapi-abcdefghijklmnop0123456789',
      'password: hunter2hunter2',
      'use postgres://joe:pa55@db/x',
      '-----BEGIN OPENSSH PRIVATE KEY-----',
      `token ghp_${'a1'.repeat(18)}`,
    ])
      expect(await memory.remember(say(text)), text).toMatchObject({ error: { code: 'secret_refused' } })
    for (const text of ['The token is in .env', 'password: ask Ann', 'See https://docs.test/a:b@c'])
      expect((await memory.remember(say(text))).ok, text).toBe(true)
    expect(noteOf(await memory.remember(say('it says s3cr3t'))).text).toBe('it says s3cr3t')
    expect(JSON.stringify(events)).toContain('it says [redacted]')
    expect(JSON.stringify(events)).not.toContain('s3cr3t')
  })

  it('bounds what a run proposes, of both kinds together [S0.13]', async () => {
    const { memory, events } = await open()
    const half = proposalsMaxCount / 2
    for (let number = 0; number < half; number++) noteOf(await memory.remember(say(`n${number}`)))
    for (let number = 0; number < half; number++)
      expect((await memory.addNote({ proposalId: 'PROP-1', text: `n${number}`, agentPath: 'root' })).ok).toBe(
        true,
      )
    expect(await memory.remember(say('one more'))).toMatchObject({
      error: { code: 'limit_notes', status: 403 },
    })
    expect(await memory.remember(say('x'.repeat(noteMaxChars + 1)))).toMatchObject({
      error: { code: 'request_too_large' },
    })
    expect(await memory.remember(say(' \n '))).toMatchObject({ error: { code: 'invalid_request' } })
    expect(events).toHaveLength(proposalsMaxCount)
  })

  it('tells a task of the newest notes within a bound [S0.13]', async () => {
    const { store } = await open(
      Array.from({ length: 40 }, (_, number) => kept(number, `${number} ${'x'.repeat(900)}`)),
    )
    const told = await notesForTask(store, '/w')
    expect(told[0]?.text).toMatch(/^39 /)
    expect(told.length).toBeGreaterThan(8)
    expect(told.length).toBeLessThan(15)
    expect(await notesForTask(store, '/elsewhere')).toEqual([])
  })

  it('counts the tags of what a task gets with its words [S0.13]', async () => {
    const tags = Array.from({ length: 16 }, (_, index) => `${index}`.padEnd(180, 'x'))
    const { store } = await open(Array.from({ length: 10 }, (_, index) => kept(index, 'short', tags)))
    expect(await notesForTask(store, '/w')).toHaveLength(4)
  })

  it('has the notes of a proposal, whoever wrote them [S4.04]', async () => {
    const person = {
      kind: 'governance',
      noteId: 'gov-000000000001',
      text: 'Ann agrees',
      author: 'person',
      at: 1,
    } as const
    const { memory, events } = await open([{ ...person, proposalId: 'PROP-7' }])
    expect((await memory.addNote({ proposalId: 'PROP-7', text: 'Costs less', agentPath: 'root/a' })).ok).toBe(
      true,
    )
    expect((await memory.addNote({ proposalId: 'PROP-7', text: 'Costs less', agentPath: 'root' })).ok).toBe(
      true,
    )
    const listed = await memory.listNotes({ proposalId: 'PROP-7' })
    expect(listed.ok && listed.value.notes.map(({ text, author, state }) => [text, author, state])).toEqual([
      ['Ann agrees', 'person', 'kept'],
      ['Costs less', runId, 'proposed'],
    ])
    expect(await memory.listNotes({ proposalId: 'PROP-8' })).toEqual({ ok: true, value: { notes: [] } })
    expect(events).toHaveLength(1)
  })
})

describe('the paths of memory', () => {
  it('take requests of their form alone, and so many at once [S0.13]', async () => {
    const { memory, events } = await open()
    const gateway = createGateway({
      provider: offlineProvider(false),
      runId,
      limits: { maxTokens: 1_000 },
      services: {
        paths: serveMemory(memory, async (agentPath) => agentPath !== 'root/gone'),
        egress: async (stream) => void stream.destroy(),
      },
      onModelEvent: () => undefined,
      onDenied: () => undefined,
      logger: { info: () => undefined, warn: () => undefined },
    })
    const server = http2.createServer()
    server.on('stream', (stream, headers) => gateway.handleStream(stream, headers))
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const client = http2.connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
    client.on('error', () => undefined)
    onTestFinished(async () => {
      await gateway.close()
      client.destroy()
      server.close()
    })
    const ask = async (where: string, body: unknown) => {
      const stream = client.request({
        ':method': 'POST',
        ':path': where,
        ':authority': 'gateway',
        ':scheme': 'http',
      })
      stream.end(typeof body === 'string' ? body : JSON.stringify(body))
      return await readAnswer(stream)
    }
    const good = { text: 'Use tabs', tags: ['style'], agentPath: 'root' }
    expect(JSON.parse((await ask('/memory/remember', good)).text)).toMatchObject({
      note: { text: 'Use tabs' },
    })
    expect(JSON.parse((await ask('/memory/recall', { query: 'tabs' })).text)).toMatchObject({ total: 1 })
    for (const body of [
      '',
      '[]',
      '{"text":1}',
      { ...good, agentPath: 'person' },
      { ...good, state: 'kept' },
      { ...good, text: 'x'.repeat(70_000) },
      { ...good, tags: Array.from({ length: 17 }, () => 'x') },
    ])
      expect((await ask('/memory/remember', body)).status).toBeGreaterThanOrEqual(400)
    expect((await ask('/notes/add', { proposalId: 'no', text: 'x', agentPath: 'root' })).status).toBe(400)
    for (const [where, body] of [
      ['/memory/remember', { ...good, text: 'Use blanks', agentPath: 'root/gone' }],
      ['/notes/add', { proposalId: 'PROP-1', text: 'x', agentPath: 'root/gone' }],
    ] as const) {
      const { status, text } = await ask(where, body)
      expect([status, text]).toEqual([400, expect.stringContaining('No agent root/gone is at work')])
    }
    expect(events).toHaveLength(1)
    const flood = await Promise.all(
      Array.from({ length: 100 }, (_, number) =>
        ask('/memory/remember', { ...good, text: `flood ${number}` }),
      ),
    )
    expect(flood.every(({ status }) => [200, 403, 429].includes(status))).toBe(true)
    expect(events.length).toBeLessThanOrEqual(proposalsMaxCount)
  })
})
