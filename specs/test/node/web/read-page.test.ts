// What hostile pages do to the reader of pages: it ends, and nothing else does.
import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import path from 'node:path'
import { promisify } from 'node:util'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { prettyJson, readContent } from '../../../node/web/content.ts'
import { readerCommand, readPage } from '../../../node/web/read-page.ts'
import { makeReadable } from '../../../node/web/readable.ts'
import { temporaryFolder } from '../../../testing/temporary-folder.ts'

const { signal } = new AbortController()
const url = 'https://site.test/a/b'

describe('the reader of pages', () => {
  it('drops what is not to be read: scripts, forms, hidden elements, links that are none, data in pictures', () => {
    const { markdown } = makeReadable(
      `<p>Seen <a href="javascript:x()">one</a> <a href="data:text/html,x">two</a> <a href="mailto:a@b.c">three</a>
       <img alt="A cat" src="data:image/png;base64,AAAA"><img src="x.png"></p>
       <p style="display: none">h1</p><p aria-hidden="true">h2</p><form><input value="h3"><button>h4</button></form>
       <style>h5</style><template>h6</template><noscript>h7</noscript><!-- h8 --><p>tag\u{e0041}\u{e0042}end</p>`,
      url,
    )
    expect(markdown).toBe('Seen one two [three](mailto:a@b.c) [picture: A cat]\n\ntagend')
  })

  it('takes the base of links from the page, if it is an address', () => {
    const link = '<p><a href="x">y</a></p>'
    expect(makeReadable(`<base href="/q/">${link}`, url).markdown).toBe('[y](https://site.test/q/x)')
    expect(makeReadable(`<base href="javascript:1">${link}`, url).markdown).toBe('[y](https://site.test/a/x)')
  })

  it('ends with an error for a page beyond its bounds of memory or time, and continues with the next', async () => {
    const hostile = '<p a=1 b=2>x'.repeat(200_000)
    const heavy = await readPage(hostile, url, signal, { timeoutMs: 20_000, heapMiB: 32 })
    expect(heavy).toMatchObject({ ok: false, error: expect.stringContaining('too large') })
    const slow = await readPage(hostile, url, signal, { timeoutMs: 300, heapMiB: 384 })
    expect(slow).toMatchObject({ ok: false, error: expect.stringContaining('more than 0.3 s') })
    expect(await readPage('<title>t</title><p>x', url, signal)).toEqual({
      ok: true,
      value: { title: 't', markdown: 'x' },
    })
  })

  it('reads no file, writes none, starts nothing and, on Linux, reaches no network, whatever runs in it', async () => {
    const folder = await temporaryFolder('reader')
    const file = path.join(folder, 'private.txt')
    writeFileSync(file, 'private')
    let connections = 0
    await using server = createServer((socket) => {
      connections += 1
      socket.end()
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const { port } = server.address() as { port: number }
    const code = `
      import { readFileSync, writeFileSync } from 'node:fs'
      import { spawnSync } from 'node:child_process'
      import { connect } from 'node:net'
      const tried = {}
      const attempt = (name, act) => { try { act(); tried[name] = 'done' } catch (error) { tried[name] = error.code } }
      attempt('read', () => readFileSync(${JSON.stringify(file)}))
      attempt('passwd', () => readFileSync('/etc/passwd'))
      attempt('proc', () => readFileSync('/proc/self/environ'))
      attempt('write', () => writeFileSync(${JSON.stringify(path.join(folder, 'new'))}, ''))
      attempt('spawn', () => spawnSync('/bin/true'))
      await new Promise((resolve) => {
        const socket = connect(${port}, '127.0.0.1')
        const say = (word) => () => { tried.connect = word; resolve() }
        socket.on('connect', say('done')).on('error', say('refused'))
      })
      console.log(JSON.stringify(tried))`
    const [shell = '', ...args] = readerCommand(128, ['--input-type=module', '-e', code])
    const { stdout } = await promisify(execFile)(shell, args, { cwd: '/', env: {} })
    const denied = 'ERR_ACCESS_DENIED'
    const files = { read: denied, passwd: denied, proc: denied, write: denied, spawn: denied }
    expect(JSON.parse(stdout)).toMatchObject(files)
    if (process.platform !== 'linux') return
    expect(JSON.parse(stdout)).toMatchObject({ connect: 'refused' })
    expect(connections).toBe(0)
  })

  it('ends at once with whoever waits for it', async () => {
    const gone = new AbortController()
    const reading = readPage('<div>'.repeat(300_000), url, gone.signal)
    setTimeout(() => gone.abort(), 300)
    expect(await reading).toMatchObject({ ok: false, error: 'reading was cancelled' })
  })

  it('gives its place to who still waits, however many others have left the queue', async () => {
    const bounds = { timeoutMs: 1_500, heapMiB: 384 }
    const slow = [1, 2].map(() => readPage('<div>'.repeat(300_000), url, signal, bounds))
    const patient = [1, 2].map(() => readPage('<p>x', url, signal))
    const gone = new AbortController()
    const leaving = [1, 2, 3].map(() => readPage('<p>y', url, gone.signal))
    gone.abort()
    expect(await Promise.all(leaving)).toMatchObject([{ ok: false }, { ok: false }, { ok: false }])
    await Promise.all(slow)
    expect(await Promise.all(patient)).toMatchObject([{ ok: true }, { ok: true }])
  })

  it('makes text of any bytes that are called HTML', () => {
    const piece = fc.oneof(
      fc.constantFrom(
        '<',
        '>',
        '</',
        '<a href="',
        '<table><tr><td>',
        '<base href="',
        '<p hidden',
        '"',
        '&#x0;',
        '<html',
        '<head>',
        '<body',
        '<svg>',
        '<title>',
        '<frameset>',
        '<!--',
        ']]>',
      ),
      fc.string({ unit: 'binary', maxLength: 8 }),
    )
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 20 }), (pieces) => {
        const { title, markdown } = makeReadable(pieces.join(''), url)
        expect(typeof title).toBe('string')
        expect(markdown).not.toMatch(/[\u{e0000}-\u{e007f}]/u)
      }),
      { numRuns: 200, seed: 4 },
    )
  })

  it('reads any bytes under any type as text, or says what they are', () => {
    fc.assert(
      fc.property(
        fc.uint8Array({ maxLength: 200 }),
        fc.option(fc.string({ maxLength: 60 })),
        (bytes, type) => {
          const read = readContent(Buffer.from(bytes), type ?? undefined)
          expect(typeof (read.ok ? read.value.text : read.error)).toBe('string')
          if (read.ok) expect(typeof prettyJson(read.value.text)).toBe('string')
        },
      ),
      { numRuns: 500, seed: 5 },
    )
  })
})
