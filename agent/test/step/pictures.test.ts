// Images that calls of `read_file` show: real files, the real conversation, log and client, a model that is scripted.
import { createHash } from 'node:crypto'
import { readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import type { CompletionPart } from '#specs/protocol/completion-request.ts'
import { imageMaxBytes, imagesMaxCount } from '#specs/protocol/image.ts'
import { dataUrl, gif, jpeg, png, webp } from '#specs/testing/images.ts'
import { reply } from '#specs/testing/model-replies.ts'
import type { Asked, Script } from '#specs/testing/model-server.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { openRunLog } from '../../run/run-log.ts'
import { createRegistry } from '../../tool-calls/registry.ts'
import { createReadFile } from '../../tools/files/file-read.ts'
import { performStep } from '../support/one-step.ts'
import { silentLogger } from '../support/run.ts'
import { callAsModel } from '../support/tools.ts'

const chart = png(640, 480)

async function workspace(files: Readonly<Record<string, Uint8Array>> = { 'chart.png': chart }) {
  const root = await temporaryFolder('pictures')
  for (const [name, bytes] of Object.entries(files)) writeFileSync(path.join(root, name), bytes)
  const tools = [createReadFile({ root })]
  return { root, tools, registry: createRegistry(tools, { logger: silentLogger }) }
}

const readCalls = (...paths: string[]) =>
  reply({ calls: paths.map((file) => ({ name: 'read_file', arguments: { path: file } })) })

/** The image URLs of a request, oldest first. */
function imagesOf(asked: Asked | undefined): string[] {
  return (asked?.messages ?? []).flatMap(({ content }) => {
    const parts: unknown = content
    if (!Array.isArray(parts)) return []
    return (parts as CompletionPart[]).flatMap((part) =>
      part.type === 'image_url' ? [part.image_url.url] : [],
    )
  })
}

const wholeText = (asked: Asked | undefined): string => JSON.stringify(asked?.messages)

/** Reads the files one after the other, then answers. */
const readAll =
  (paths: readonly string[]): Script =>
  (asked) => {
    const done = asked.messages.filter(({ role }) => role === 'tool').length
    const next = paths[done]
    return next === undefined ? reply({ text: 'seen' }) : readCalls(next)
  }

describe('read_file of an image', () => {
  it.each([
    ['PNG', 'image/png', png(640, 480)],
    ['JPEG', 'image/jpeg', jpeg(640, 480)],
    ['GIF', 'image/gif', gif(640, 480)],
    ['WebP', 'image/webp', webp(640, 480)],
  ])(
    'shows the model a %s by its bytes, whatever its name, and says what it is [G.09]',
    async (name, type, bytes) => {
      const { tools } = await workspace({ 'data.txt': bytes })
      const { output, picture } = await callAsModel(tools, 'read_file', { path: 'data.txt' })
      expect(output).toBe(
        `[data.txt: ${name} image, 640x480 pixels, ${bytes.length} bytes; the next message shows it]`,
      )
      const sha256 = createHash('sha256').update(bytes).digest('hex')
      expect(picture).toEqual({
        name: 'data.txt',
        image: { sha256, type, width: 640, height: 480, sizeBytes: bytes.length },
        url: dataUrl(type, bytes),
      })
    },
  )

  it('tells a program what it is without showing it [G.09]', async () => {
    const { tools } = await workspace()
    const { output, picture } = await callAsModel(
      tools,
      'read_file',
      { path: 'chart.png' },
      { parentCallId: 'p' },
    )
    expect(output).toContain('PNG image, 640x480 pixels')
    expect(output).toContain('a program gets no picture')
    expect(picture).toBeUndefined()
  })

  it.each([
    ['is cut off', chart.subarray(0, -4), 'no whole PNG, JPEG, WebP or GIF image'],
    ['is too large', Buffer.concat([chart, Buffer.alloc(imageMaxBytes)]), `at most ${imageMaxBytes} bytes`],
    ['has too many pixels', png(8_001, 1), '8001x1 pixels'],
  ])('refuses one that %s, and says why [G.09]', async (_name, bytes, why) => {
    const { tools } = await workspace({ 'a.png': bytes })
    const { error, picture } = await callAsModel(tools, 'read_file', { path: 'a.png' })
    expect(error).toMatchObject({ code: 'binary_file', message: expect.stringContaining(why) })
    expect(picture).toBeUndefined()
  })

  it('reads text that begins as an image as text, and nothing outside of the workspace [G.09 S1.08]', async () => {
    const { root, tools } = await workspace({ 'a.md': Buffer.from('GIF89a is a format.\n') })
    const text = await callAsModel(tools, 'read_file', { path: 'a.md' })
    expect(text.output).toContain('GIF89a is a format.')
    const elsewhere = path.join(await temporaryFolder('elsewhere'), 'secret.png')
    writeFileSync(elsewhere, chart)
    symlinkSync(elsewhere, path.join(root, 'link.png'))
    for (const file of ['link.png', elsewhere]) {
      const { error, picture } = await callAsModel(tools, 'read_file', { path: file })
      expect([error?.code, picture]).toEqual(['outside_workspace', undefined])
    }
  })

  it('keeps back what a hook withholds [G.09]', async () => {
    const { tools } = await workspace()
    const { error, picture } = await callAsModel(
      tools,
      'read_file',
      { path: 'chart.png' },
      {
        hooks: {
          looksAfter: () => true,
          before: () => Promise.resolve(undefined),
          after: () => Promise.resolve({ decision: 'deny', reason: 'private' }),
        },
      },
    )
    expect([error?.code, picture]).toEqual(['denied', undefined])
  })
})

describe('a conversation with images', () => {
  it('has them behind the results of the turn, and the journal has their digests alone [G.09]', async () => {
    const { registry } = await workspace({ 'chart.png': chart, 'photo.jpg': jpeg(8, 8) })
    const script = [readCalls('chart.png', 'photo.jpg'), reply({ text: 'done' })]
    const { asked, events, result } = await performStep(script, { registry })
    expect(result.state).toBe('completed')
    expect(imagesOf(asked[1])).toEqual([dataUrl('image/png', chart), dataUrl('image/jpeg', jpeg(8, 8))])
    expect(asked[1]?.messages.map(({ role }) => role).slice(-4)).toEqual([
      'assistant',
      'tool',
      'tool',
      'user',
    ])
    expect(wholeText(asked[1])).toContain('The images that were read, in this order: chart.png, photo.jpg')
    const ends = events.filter(({ type }) => type === 'tool-end')
    expect(ends[0]).toMatchObject({ image: { type: 'image/png', width: 640, height: 480 } })
    expect(JSON.stringify(events)).not.toContain('base64')
  })

  it('drops the oldest beyond one request, with a note, by count and by bytes [G.09]', async () => {
    const small = Object.fromEntries(
      Array.from({ length: imagesMaxCount + 2 }, (_, at) => [`${at}.png`, png(at + 1, 1)]),
    )
    const { registry } = await workspace(small)
    const { asked } = await performStep(readAll(Object.keys(small)), { registry })
    const last = imagesOf(asked.at(-1))
    expect(last).toHaveLength(imagesMaxCount)
    expect(last.at(-1)).toBe(dataUrl('image/png', png(imagesMaxCount + 2, 1)))
    expect(wholeText(asked.at(-1))).toContain('0.png\\n[Caisson] Images are left out here')

    const tail = chart.subarray(33)
    const large = Buffer.concat([chart.subarray(0, 33), Buffer.alloc(900 * 1024), tail])
    const few = await workspace({ 'a.png': large, 'b.png': large, 'c.png': large, 'd.png': large })
    const many = await performStep(readAll(['a.png', 'b.png', 'c.png', 'd.png']), { registry: few.registry })
    expect(many.result.state).toBe('completed')
    expect(many.asked.map((one) => imagesOf(one).length)).toEqual([0, 1, 2, 3, 3])
  })

  it('is shortened by its images of earlier turns first [G.09 A.04]', async () => {
    const names = ['a.png', 'b.png', 'c.png', 'd.png', 'e.png', 'f.png']
    const files = Object.fromEntries(names.map((name, at) => [name, png(1_600, 1_600 + at)]))
    const { registry } = await workspace(files)
    const { asked, events, result } = await performStep(readAll(names), {
      registry,
      task: { contextTokens: 24_000 },
    })
    expect(result).toMatchObject({ state: 'completed', text: 'seen' })
    const compactions = events.filter(({ type }) => type === 'context-compact')
    expect(compactions.length).toBeGreaterThan(0)
    expect(compactions.every((event) => event.type === 'context-compact' && event.summary === '')).toBe(true)
    expect(imagesOf(asked.at(-1)).at(-1)).toBe(dataUrl('image/png', png(1_600, 1_605)))
    expect(imagesOf(asked.at(-1)).length).toBeLessThan(4)
    expect(wholeText(asked.at(-1))).toContain('a.png\\n[Caisson] Images are left out here')
    expect(asked.at(-1)?.messages.filter(({ role }) => role === 'tool')).toHaveLength(6)
  })

  it('has them again from the log of the run, which holds each once [G.09 R.01]', async () => {
    const { root, registry } = await workspace()
    const file = path.join(await temporaryFolder('log'), 'run.jsonl')
    const makeCheckpoint = () => Promise.resolve(true)
    const readAs = (id: string, file: string) =>
      reply({ calls: [{ id, name: 'read_file', arguments: { path: file } }] })
    const script = [readAs('one', 'chart.png'), readAs('two', './chart.png'), reply({ text: 'done' })]
    await performStep(script, { registry, log: openRunLog({ file, resume: false, makeCheckpoint }) })
    expect(readFileSync(file, 'utf8').split(dataUrl('image/png', chart))).toHaveLength(2)
    // The file became another one since.
    writeFileSync(path.join(root, 'chart.png'), png(1, 1))
    const log = openRunLog({ file, resume: true, makeCheckpoint })
    const again = await performStep(script, { registry, log })
    expect(imagesOf(again.asked[2])).toEqual([dataUrl('image/png', chart), dataUrl('image/png', chart)])
  })
})
