/**
 * Records a real run in a terminal as the animated picture of the README: `node record-terminal.ts > docs/run.svg`.
 * The run uses the offline model and a real VM. The picture adds the frame, and shortens waits to {@link LONGEST_WAIT_MS}.
 */
import { spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import xterm from '@xterm/headless'

const COLUMNS = 92
const ROWS = 34
const CHARACTER_WIDTH = 8.05
const LINE_HEIGHT = 18
const PADDING = 16
const HEADER = 34
const LONGEST_WAIT_MS = 700
const SHORTEST_FRAME_MS = 120
const CLOCK_FRAME_MS = 1_000
const LAST_FRAME_MS = 6_000
const TIMEOUT_MS = 300_000
/** Colors of the palette that Caisson prints. */
const colors: Readonly<Record<number, string>> = { 1: '#ff8a80', 2: '#86d993', 3: '#f2cc60', 6: '#7fd7e8' }

const TASK = 'Run the command `wc -w *.md`. Delete draft.md. Create title.md with the text The Caisson'
const FILES = {
  'chapter-1.md': 'It was a dark and stormy night.\n',
  'chapter-2.md': 'The rain had stopped.\n',
  'draft.md': 'Nothing to keep.\n',
}
/** What the person types when the screen shows it. */
const ANSWERS: readonly (readonly [seen: string, keys: string])[] = [
  ['Type 1-4, y, n', 'y'],
  ['Type 1-3, y, n', 'y'],
]

interface Frame {
  readonly atMs: number
  /** One SVG text per row, without its place. */
  readonly rows: readonly string[]
}

const escapeXml = (text: string) => text.replace(/[&<>]/g, (sign) => `&#${sign.charCodeAt(0)};`)

class Screen {
  readonly #terminal = new xterm.Terminal({ cols: COLUMNS, rows: ROWS, allowProposedApi: true })
  readonly frames: Frame[] = []
  readonly #startedAt = performance.now()

  async write(data: string): Promise<void> {
    await new Promise<void>((resolve) => this.#terminal.write(data, resolve))
    const rows = this.#rows()
    const last = this.frames.at(-1)
    if (last !== undefined && last.rows.join('\n') === rows.join('\n')) return
    this.frames.push({ atMs: performance.now() - this.#startedAt, rows })
  }

  get text(): string {
    const { active } = this.#terminal.buffer
    return Array.from({ length: ROWS }, (_, y) =>
      active.getLine(active.viewportY + y)?.translateToString(true),
    ).join('\n')
  }

  #rows(): string[] {
    const { active } = this.#terminal.buffer
    return Array.from({ length: ROWS }, (_, y) => drawRow(active.getLine(active.viewportY + y)))
  }
}

type Line = ReturnType<InstanceType<typeof xterm.Terminal>['buffer']['active']['getLine']>

function drawRow(line: Line): string {
  const spans: { style: string; text: string }[] = []
  for (let x = 0; x < COLUMNS; x++) {
    const cell = line?.getCell(x)
    const fill = cell?.isFgPalette() ? colors[cell.getFgColor()] : cell?.isDim() ? '#9198a1' : undefined
    const style = `${fill === undefined ? '' : ` fill="${fill}"`}${cell?.isBold() ? ' font-weight="bold"' : ''}`
    const text = cell?.getChars() || ' '
    const last = spans.at(-1)
    if (last?.style === style) last.text += text
    else spans.push({ style, text })
  }
  while (spans.at(-1)?.text.trim() === '') spans.pop()
  return spans
    .map(({ style, text }, at) => ({ style, text: at === spans.length - 1 ? text.trimEnd() : text }))
    .map(({ style, text }) => `<tspan${style}>${escapeXml(text)}</tspan>`)
    .join('')
}

/** The run in a pseudo-terminal, answered as {@link ANSWERS} says. */
async function record(): Promise<Frame[]> {
  const scratch = mkdtempSync(path.join(tmpdir(), 'caisson-record-'))
  // A path that means something to a reader.
  const workspace = path.join(tmpdir(), 'novel')
  mkdirSync(workspace)
  try {
    for (const [name, text] of Object.entries(FILES)) writeFileSync(path.join(workspace, name), text)
    const screen = new Screen()
    for (const part of ['$ ', ...(`caisson run "${TASK}"`.match(/.{1,4}/g) ?? []), '\r\n']) {
      await screen.write(part)
      await sleep(30)
    }
    await runInto(screen, workspace, path.join(scratch, 'home'))
    return screen.frames
  } finally {
    for (const folder of [scratch, workspace]) rmSync(folder, { recursive: true, force: true })
  }
}

async function runInto(screen: Screen, workspace: string, home: string): Promise<void> {
  const bin = path.join(import.meta.dirname, '../../host/cli/bin.ts')
  const words = [process.execPath, '--conditions=caisson-source', bin, 'run', TASK, '--ram', '512M']
  const command = `stty cols ${COLUMNS} rows ${ROWS}; exec ${words.map((word) => `'${word}'`).join(' ')}`
  const { PATH = '', HOME = '', CAISSON_CACHE } = process.env
  const cache = CAISSON_CACHE === undefined ? {} : { CAISSON_CACHE }
  const env = { PATH, HOME, TERM: 'xterm', LANG: 'C.UTF-8', SHELL: '/bin/sh', CAISSON_HOME: home, ...cache }
  const child = spawn('script', ['-qfec', command, '/dev/null'], { cwd: workspace, env, timeout: TIMEOUT_MS })
  let tail = Promise.resolve()
  child.stdout.setEncoding('utf8').on('data', (data: string) => {
    tail = tail.then(() => screen.write(data))
  })
  const ended = new Promise<number | null>((resolve) => child.on('close', resolve))
  for (const [seen, keys] of ANSWERS) {
    while (!screen.text.includes(seen) && child.exitCode === null) await sleep(50)
    await sleep(1_500)
    child.stdin.write(keys)
    await sleep(400)
    child.stdin.write('\r')
  }
  const code = await ended
  await tail
  if (code !== 0) throw new Error(`expected the run to end with 0, it ended with ${code}:\n${screen.text}`)
}

/** When each frame begins in the picture, and the whole time, in ms. */
function timesOf(frames: readonly Frame[]): { readonly begins: number[]; readonly total: number } {
  const begins: number[] = []
  let now = 0
  for (const [index, { atMs }] of frames.entries()) {
    begins.push(now)
    const next = frames[index + 1]
    now += next === undefined ? LAST_FRAME_MS : Math.min(LONGEST_WAIT_MS, next.atMs - atMs)
  }
  return { begins, total: now }
}

/** Of frames that follow each other quickly only the last; of those where only a clock changed, one per second. */
function thin(frames: readonly Frame[]): Frame[] {
  const kept: Frame[] = []
  for (const [index, frame] of frames.entries()) {
    const next = frames[index + 1]
    if (next !== undefined && next.atMs - frame.atMs < SHORTEST_FRAME_MS) continue
    const last = kept.at(-1)
    const isClock = last !== undefined && withoutClock(last) === withoutClock(frame)
    if (!isClock || frame.atMs - last.atMs >= CLOCK_FRAME_MS) kept.push(frame)
  }
  return kept
}

const withoutClock = ({ rows }: Frame): string =>
  rows.join('\n').replace(/[\u2800-\u28ff]|\d+\.\d s|\d+ min \d+ s left/g, '')

function drawTerminal(all: readonly Frame[], title: string): string {
  const frames = thin(all)
  const { begins, total } = timesOf(frames)
  const known = new Map<string, string>()
  const define = (row: string): string => {
    const id = known.get(row) ?? `r${known.size}`
    known.set(row, id)
    return id
  }
  const percent = (ms: number) => ((ms / total) * 100).toFixed(3)
  const drawn = frames.map(({ rows }, index) => {
    const uses = rows.flatMap((row, y) =>
      row === '' ? [] : [`<use href="#${define(row)}" y="${y * LINE_HEIGHT}"/>`],
    )
    return `<g class="f" id="f${index}">${uses.join('')}</g>`
  })
  const rules = frames.map((_, index) => {
    const [from, to] = [percent(begins[index] ?? 0), percent(begins[index + 1] ?? total)]
    const isLast = index === frames.length - 1
    const after = isLast ? '' : `${to}%,100%{visibility:hidden}`
    return `@keyframes k${index}{0%{visibility:hidden}${from}%{visibility:visible}${after}}#f${index}{animation:k${index} ${(total / 1_000).toFixed(2)}s step-end infinite}`
  })
  const last = frames.length - 1
  const still = `@media (prefers-reduced-motion: reduce){#f${last}{visibility:visible}}`
  const width = Math.round(COLUMNS * CHARACTER_WIDTH + 2 * PADDING)
  const height = HEADER + 2 * PADDING + ROWS * LINE_HEIGHT
  const dots = ['#ff5f57', '#febc2e', '#28c840'].map(
    (color, index) => `<circle cx="${20 + index * 18}" cy="17" r="5.5" fill="${color}"/>`,
  )
  const definitions = [...known].map(([row, id]) => `<text id="${id}" xml:space="preserve">${row}</text>`)
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${escapeXml(title)}">
<style>.f{visibility:hidden}@media (prefers-reduced-motion: no-preference){${rules.join('')}}${still}</style>
<rect width="${width}" height="${height}" rx="8" fill="#161b22"/>
${dots.join('')}
<defs>
${definitions.join('\n')}
</defs>
<g transform="translate(${PADDING} ${HEADER + PADDING + 12})" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="13.4" fill="#e6edf3">
${drawn.join('\n')}
</g>
</svg>
`
}

const title =
  'A run in a terminal: plan, tool calls, an approval, the diff of each change, and the question whether to apply it'
process.stdout.write(drawTerminal(await record(), title))
