// A real pseudo-terminal that changes its size again and again, with an emulator that shows what a person sees.
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import xterm from '@xterm/headless'
import { expect, it, onTestFinished } from 'vitest'
import { perTier } from '#specs/testing/tier.ts'

const program = path.join(import.meta.dirname, '../support/resized-terminal.ts')
const { Terminal } = xterm

/** What an emulator does with rows when its width changes. */
interface Rewrapping {
  readonly windowsPty?: { readonly backend: 'conpty'; readonly buildNumber: number }
  readonly reflowCursorLine?: boolean
}

/** The least width; a terminal that cuts rows keeps what is right of it, and shows it again when it is wider. */
const colsMin = 20
/** xterm.js rewraps nothing on an old Windows. */
const cutting: Rewrapping = { windowsPty: { backend: 'conpty', buildNumber: 19_045 } }

/** All that is on the screen and above it, without blank lines; a line that the terminal broke is one again. */
function linesOf({ buffer: { active } }: InstanceType<typeof Terminal>, rewrapping: Rewrapping): string[] {
  const lines: string[] = []
  for (let y = 0; y < active.length; y++) {
    const line = active.getLine(y)
    const text = line?.translateToString(true, 0, rewrapping === cutting ? colsMin : undefined) ?? ''
    if (rewrapping !== cutting && line?.isWrapped === true) lines.push(`${lines.pop() ?? ''}${text}`)
    else lines.push(text)
  }
  return lines.filter((line) => line.trim() !== '')
}

interface Size {
  readonly cols: number
  readonly rows: number
}

/** A run on a terminal whose size changes until the run ends; what the person sees then, and what should be there. */
async function showResized(count: number, rewrapping: Rewrapping, nextSize: () => Size) {
  const terminal = new Terminal({
    cols: 100,
    rows: 30,
    scrollback: 100_000,
    allowProposedApi: true,
    ...rewrapping,
  })
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
    const { cols, rows } = nextSize()
    await new Promise<void>((resolve) => terminal.write('', resolve))
    terminal.resize(cols, rows)
    try {
      execFileSync('stty', ['-F', device, 'cols', String(cols), 'rows', String(rows)])
    } catch {
      // The program has ended, and its terminal with it.
      break
    }
    resized++
    await sleep(Math.random() * 200)
  }
  await ended
  await new Promise<void>((resolve) => terminal.write('', resolve))
  const expected = [
    `terminal ${device}`,
    ...Array.from({ length: count }, (_, at) => `line ${at + 1} of the run`),
    'the end',
  ]
  return { lines: linesOf(terminal, rewrapping), expected, resized }
}

const upTo = (least: number, most: number): number => least + Math.floor(Math.random() * (most - least + 1))

it('leaves no stray row, no line twice and none lost, however often the height of the terminal changes [S1.10 H.01]', async () => {
  const count = perTier(60, 150)
  const { lines, expected, resized } = await showResized(count, {}, () => ({ cols: 100, rows: upTo(10, 39) }))
  expect(resized).toBeGreaterThan(count / 20)
  expect(lines).toEqual(expected)
})

it.each([
  ['rewraps rows', {}],
  ['rewraps rows and the line of the cursor', { reflowCursorLine: true }],
] as const)(
  'leaves no stray row on a terminal that %s as its width changes above 80 columns [S1.10 H.01]',
  async (_, rewrapping) => {
    const count = perTier(60, 150)
    const size = (): Size => ({ cols: upTo(80, 200), rows: upTo(20, 60) })
    const { lines, expected, resized } = await showResized(count, rewrapping, size)
    expect(resized).toBeGreaterThan(count / 20)
    expect(lines).toEqual(expected)
  },
)

// Below 80 columns. xterm.js rewraps rows before the program hears of the new width, and puts the cursor lower by the rows
// that it broke below it. What is then above the cursor stays: 5 rows in 39 changes of this kind, 21 in 113 where the
// cursor's line is rewrapped too. Where the cursor is cannot be known without asking. Drawing the rows as one wrapped line
// left no stray row in the one emulator and lost 6 of 300 lines in the other.
it.each([
  ['rewraps rows', {}, 1],
  ['rewraps rows and the line of the cursor', { reflowCursorLine: true }, 1],
  ['cuts rows', cutting, 0],
] as const)(
  'loses no line and shows none twice on a terminal that %s as its width changes, and few live rows stay [S1.10 H.01]',
  async (_, rewrapping, strayPerChange) => {
    const count = perTier(60, 200)
    const size = (): Size => ({ cols: upTo(colsMin, 160), rows: upTo(20, 160) })
    const { lines, expected, resized } = await showResized(count, rewrapping, size)
    expect(resized).toBeGreaterThan(count / 20)
    const log = lines.filter((line) => /^(terminal|line|the end)/.test(line)).map((line) => line.trimEnd())
    expect(log.map((line) => (line.startsWith('terminal') ? line.slice(0, colsMin) : line))).toEqual(
      expected.map((line) => line.slice(0, colsMin)),
    )
    expect(lines.length - log.length).toBeLessThanOrEqual(resized * strayPerChange)
  },
)
