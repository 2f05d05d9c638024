// Questions on the desktop: a real service and its real question, with programs in the place of the desktop's.
import { chmod, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { afterEach, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host/index.ts'
import { showOnDesktop } from '../../host/notify/desktop.ts'
import { runAtWork } from '../../host/test/support/run-at-work.ts'
import { noticeTimes } from './notify-support.ts'
import { serveHost } from './support.ts'

const earlier = process.env.PATH
afterEach(() => {
  process.env.PATH = earlier
})

/** Programs that write each of their arguments on a line of the file. @returns the file */
async function installDesktop(exitCode = 0): Promise<string> {
  const folder = await temporaryFolder('desktop')
  const file = path.join(folder, 'shown')
  const program = `#!/bin/sh\nprintf '%s\\n' "$@" "" >> '${file}'\necho 'no session bus' >&2\nexit ${exitCode}\n`
  for (const name of ['notify-send', 'osascript']) {
    await writeFile(path.join(folder, name), program)
    await chmod(path.join(folder, name), 0o755)
  }
  process.env.PATH = `${folder}:${earlier}`
  return file
}

it('a question that waits is shown once on the desktop of the service, as text [H.02]', async () => {
  const shown = await installDesktop()
  const run = await runAtWork()
  const config = { notify: { afterMs: 0, desktop: true } }
  const served = await serveHost(new Host({ env: run.env, config }), { noticeTimes })
  void run.ask({ question: 'Which <b>color</b>,\n$(id)?', kind: 'text' }, 'q1')
  const sent = () => served.logged.filter(({ message }) => message === 'a question was delivered').length
  await expect.poll(sent).toBe(1)
  expect(await readFile(shown, 'utf8')).toBe(
    '--app-name=Caisson\n--\nThe agent asks you\nWhich &lt;b&gt;color&lt;/b&gt;, $(id)?\n\n',
  )
  expect((await served.send('GET', '/metrics')).text).toContain(
    'caisson_notices_total{receiver="desktop",result="sent"} 1',
  )
})

it('a desktop that shows nothing says why, and is tried again unless its program is missing [H.02]', async () => {
  const { signal } = new AbortController()
  const message = { title: 't'.repeat(500), text: `-x \u0007${'y'.repeat(500)}` }
  const shown = await installDesktop(1)
  expect(await showOnDesktop(message, { signal, platform: 'darwin' })).toMatchObject({
    isSent: false,
    isRetryable: true,
    why: 'osascript: no session bus',
  })
  const args = (await readFile(shown, 'utf8')).trimEnd().split('\n')
  expect(args.slice(-2)).toEqual(['t'.repeat(160), `-x ${'y'.repeat(157)}`])
  process.env.PATH = await temporaryFolder('empty')
  expect(await showOnDesktop(message, { signal, platform: 'linux' })).toMatchObject({
    isSent: false,
    isRetryable: false,
    why: 'the program notify-send is not installed',
  })
})
