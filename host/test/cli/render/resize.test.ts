// A real pseudo-terminal that is made lower and higher again and again, with an emulator that shows what a person sees.
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import xterm from '@xterm/headless'
import { expect, it, onTestFinished } from 'vitest'
import { perTier } from '#specs/testing/tier.ts'

const program = path.join(import.meta.dirname, '../support/resized-terminal.ts')
const { Terminal } = xterm

/** All that is on the screen and above it, without blank lines; a line that the terminal broke is one again. */
function linesOf({ buffer: { active } }: InstanceType<typeof Terminal>): string[] {
  const lines: string[] = []
  for (let y = 0; y < active.length; y++) {
    const line = active.getLine(y)
    const text = line?.translateToString(true) ?? ''
    if (line?.isWrapped === true) lines.push(`${lines.pop() ?? ''}${text}`)
    else lines.push(text)
  }
  return lines.filter((line) => line.trim() !== '')
}

it('leaves no stray row, no line twice and none lost, however often the height of the terminal changes [S1.10 H.01]', async () => {
  const count = perTier(60, 600)
  const terminal = new Terminal({ cols: 100, rows: 30, scrollback: 10_000, allowProposedApi: true })
  const words = [process.execPath, '--conditions=caisson-source', program, String(count), '40']
  const command = `stty cols 100 rows 30; exec '${words.join("' '")}'`
  const env = { ...process.env, SHELL: '/bin/sh', TERM: 'xterm', LANG: 'C.UTF-8' }
  const child = spawn('script', ['-qfec', command, '/dev/null'], { env })
  onTestFinished(() => void child.kill('SIGKILL'))
  let shown = ''
  child.stdout.setEncoding('utf8').on('data', (data: string) => {
    shown += data
    terminal.write(data)
  })
  const ended = once(child, 'close')
  await expect.poll(() => /terminal (\/dev\/pts\/\d+)/.exec(shown)).not.toBeNull()
  const [, device = ''] = /terminal (\/dev\/pts\/\d+)/.exec(shown) ?? []
  let resized = 0
  while (child.exitCode === null && !shown.includes('the end')) {
    const rows = 10 + Math.floor(Math.random() * 30)
    await new Promise<void>((resolve) => terminal.write('', resolve))
    terminal.resize(100, rows)
    try {
      execFileSync('stty', ['-F', device, 'rows', String(rows)])
    } catch {
      // The program has ended, and its terminal with it.
      break
    }
    resized++
    await sleep(Math.random() * 200)
  }
  await ended
  await new Promise<void>((resolve) => terminal.write('', resolve))
  expect(resized).toBeGreaterThan(count / 20)
  expect(linesOf(terminal)).toEqual([
    `terminal ${device}`,
    ...Array.from({ length: count }, (_, at) => `line ${at + 1} of the run`),
    'the end',
  ])
})
