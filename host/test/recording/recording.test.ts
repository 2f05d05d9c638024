import { appendFile, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { CompletionRequest } from '#specs/protocol/completion-request.ts'
import { dataUrl, png } from '#specs/testing/images.ts'
import { gatewayError } from '../../net/gateway-error.ts'
import { type Upstream, type UpstreamAnswer, UpstreamBreak } from '../../providers/upstream.ts'
import type { RecordingHeader } from '../../recording/format.ts'
import { Recorder } from '../../recording/recorder.ts'
import { Recording } from '../../recording/replay.ts'

const KEY = 'nvapi-0123456789'
const header: RecordingHeader = {
  version: 1,
  runId: `run-${'a'.repeat(20)}`,
  model: 'some/model',
  provider: 'custom',
  at: 1,
}
const send = { maxTokens: 1_000, signal: new AbortController().signal }

let folder: string
let file: string
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'caisson-recording-'))
  file = path.join(folder, 'exchanges.jsonl')
})
afterEach(() => rm(folder, { recursive: true, force: true }))

/** Answers each request with the next of `answers`, which may break off. */
function scripted(answers: readonly (readonly [text: string, end?: 'breaks' | 'refused'])[]): Upstream {
  const left = [...answers]
  return {
    async send() {
      const [text = '', end] = left.shift() ?? []
      if (end === 'refused') return { ok: false, error: gatewayError('upstream_unreachable', text) }
      return { ok: true, value: { streamed: true, headers: {}, requestBytes: 1, body: play(text, end) } }
    },
    close: () => Promise.resolve(),
  }
}

async function* play(text: string, end: 'breaks' | undefined): UpstreamAnswer['body'] & AsyncGenerator {
  yield* text.split('|').map((piece) => Buffer.from(piece))
  if (end === 'breaks') throw new UpstreamBreak(gatewayError('upstream_broken', `cut by ${KEY}`))
}

async function read(upstream: Upstream, request: CompletionRequest): Promise<string> {
  const answer = await upstream.send(request, send)
  if (!answer.ok) return `${answer.error.code}: ${answer.error.message}`
  const pieces: Uint8Array[] = []
  try {
    for await (const piece of answer.value.body) pieces.push(piece)
  } catch (error) {
    if (!(error instanceof UpstreamBreak)) throw error
    pieces.push(Buffer.from(`!${error.error.code}`))
  }
  return Buffer.concat(pieces).toString()
}

const user = (content: string) => ({ role: 'user', content }) as const
const call = (id: string): CompletionRequest['messages'] => [
  {
    role: 'assistant',
    content: null,
    tool_calls: [{ id, type: 'function', function: { name: 'read_file', arguments: '{}' } }],
  },
  { role: 'tool', tool_call_id: id, content: 'seen' },
]
const see = (url: string) => ({
  role: 'user' as const,
  content: [
    { type: 'text' as const, text: 'Look.' },
    { type: 'image_url' as const, image_url: { url } },
  ],
})
const chat = (...messages: CompletionRequest['messages']): CompletionRequest => ({ messages, stream: true })

describe('a recording', () => {
  it('gives each request its answer again, in the order in which they came, broken ones broken [G.06 R.03]', async () => {
    {
      await using recorder = await Recorder.open(file, header)
      const upstream = recorder.wrap(
        scripted([['one|and more'], ['late', 'refused'], ['then'], ['half', 'breaks']]),
        [],
      )
      await read(upstream, chat(user('a')))
      await read(upstream, chat(user('b')))
      await read(upstream, chat(user('b')))
      await read(upstream, chat(user('a'), ...call('x1'), user('c')))
    }
    const upstream = (await Recording.read(file)).upstream()
    expect(await read(upstream, chat(user('a')))).toBe('oneand more')
    expect(await read(upstream, chat(user('b')))).toBe('upstream_unreachable: late')
    expect(await read(upstream, chat(user('b')))).toBe('then')
    expect(await read(upstream, chat(user('b')))).toBe('then')
    // Ids of calls may have been drawn at random.
    expect(await read(upstream, chat(user('a'), ...call('other'), user('c')))).toBe('half!upstream_broken')
  })

  it('keeps no key, and a conversation once [G.06 G.01]', async () => {
    {
      await using recorder = await Recorder.open(file, header)
      const upstream = recorder.wrap(
        scripted([[`says ${KEY.slice(0, 5)}|${KEY.slice(5)}`], ['x', 'breaks'], [KEY, 'refused']]),
        [KEY],
      )
      for (const last of ['1', '2', '3']) await read(upstream, chat(user('a long beginning'), user(last)))
    }
    const text = await readFile(file, 'utf8')
    expect(text).not.toContain(KEY)
    expect(text).toContain('says [redacted]')
    expect(text.split('a long beginning')).toHaveLength(2)
    expect((await stat(file)).mode & 0o777).toBe(0o600)
  })

  it('keeps an image once, by its digest, and answers the same image alone [G.06 G.09]', async () => {
    const image = dataUrl('image/png', png(640, 480))
    {
      await using recorder = await Recorder.open(file, header)
      const upstream = recorder.wrap(scripted([['a chart'], ['the same'], ['again']]), [])
      await read(upstream, chat(user('a'), see(image)))
      await read(upstream, chat(user('a'), see(image), user('more')))
      await read(upstream, chat(user('b'), see(image)))
    }
    const text = await readFile(file, 'utf8')
    expect(text.split(image)).toHaveLength(2)
    const recording = await Recording.read(file)
    expect(await read(recording.upstream(), chat(user('a'), see(image), user('more')))).toBe('the same')
    const other = await read(recording.upstream(), chat(user('b'), see(dataUrl('image/png', png(640, 481)))))
    expect(other).toMatch(/^not_recorded: .*message 2 of 2, user: Look/)
    expect(recording.answeredBefore('Look.')).toBeUndefined()
  })

  it('refuses a request that it has not seen, and says where the conversation left it [G.06]', async () => {
    {
      await using recorder = await Recorder.open(file, header)
      await read(recorder.wrap(scripted([['one']]), []), chat(user('a'), user('b')))
      recorder.web('fetch', { url: 'https://a.example/' }, { ok: true, value: { title: 'A' } })
    }
    const recording = await Recording.read(file)
    const other = await read(recording.upstream(), chat(user('a'), user('something else')))
    expect(other).toMatch(/^not_recorded: .*left it at message 2 of 2, user: something else/)
    const tools = await read(recording.upstream(), { ...chat(user('a'), user('b')), temperature: 1 })
    expect(tools).toMatch(/^not_recorded: .*tools or settings/)
    expect(recording.web('fetch', { url: 'https://a.example/' })).toEqual({ ok: true, value: { title: 'A' } })
    expect(recording.web('fetch', { url: 'https://b.example/' })).toMatchObject({
      ok: false,
      error: { code: 'not_recorded', message: expect.stringContaining('b.example') },
    })
  })

  it('ends at its bound, and says so when more is asked [G.06]', async () => {
    {
      await using recorder = await Recorder.open(file, header, { maxBytes: 1_000 })
      const upstream = recorder.wrap(scripted([['x'], ['y'.repeat(2_000)], ['z']]), [])
      for (const text of ['1', '2', '3']) await read(upstream, chat(user(text)))
    }
    const recording = await Recording.read(file)
    expect(await read(recording.upstream(), chat(user('1')))).toBe('x')
    expect(await read(recording.upstream(), chat(user('2')))).toContain('it was full')
    expect((await stat(file)).size).toBeLessThan(1_100)
  })

  it.each([
    ['nothing', ''],
    ['another version', `${JSON.stringify({ ...header, version: 2 })}\n`],
    ['no JSON', 'hello\n'],
    ['a line that is no exchange', `${JSON.stringify(header)}\n{"kind":"model"}\n`],
  ])('is refused when it holds %s [G.06]', async (_, text) => {
    await writeFile(file, text)
    await expect(Recording.read(file)).rejects.toMatchObject({ code: 'invalid_recording' })
  })

  it('is refused when it is not there [G.06]', async () => {
    await expect(Recording.read(path.join(folder, 'none'))).rejects.toThrow(/cannot read the recording/)
  })

  it('of an interrupted run is continued: an unfinished line goes, answers behind a number come once more [R.01]', async () => {
    const first = await Recorder.open(file, header)
    const known = first.wrap(scripted([['one'], ['two'], ['three', 'breaks']]), [KEY])
    for (const text of ['a', 'b', 'c']) await read(known, chat(user(text)))
    first.web('call', { callId: 'c1', tool: 'order', arguments: '{}' }, { ok: true, value: 'ordered' })
    await first[Symbol.asyncDispose]()
    await appendFile(file, '{"kind":"model","key":')

    const second = await Recorder.open(file, header)
    expect(second.count).toBe(4)
    const recording = await Recording.read(file, 1)
    expect(recording.calls).toEqual([[{ callId: 'c1', tool: 'order', arguments: '{}' }, 'ordered']])
    const over = recording.over(second.wrap(scripted([['new a'], ['new b'], ['new c']]), [KEY]))
    const paid = await over.send(chat(user('b')), send)
    expect(paid).toMatchObject({ ok: true, value: { isPaid: true } })
    // Before the number, a second time, or cut off: asked of the server.
    expect(await read(over, chat(user('a')))).toBe('new a')
    expect(await read(over, chat(user('b')))).toBe('new b')
    expect(await read(over, chat(user('c')))).toBe('new c')
    await second[Symbol.asyncDispose]()
    expect((await readFile(file, 'utf8')).trimEnd().split('\n')).toHaveLength(1 + 4 + 3)
  })
})
