/**
 * One prompt at the terminal: a numbered choice or a text, closed when it is withdrawn. Only a whole line that is a number
 * of the list, or its y or n, chooses: no key of a sentence moves or confirms anything, and Enter alone grants nothing.
 */
import { fitLine } from '../render/fit.ts'
import { sanitizeLine } from '../render/sanitize.ts'
import { readLine, type SettleIo, settleKeys, type TypedLine } from './terminal-input.ts'

export interface PromptIo extends SettleIo {
  /** Takes what was typed into a prompt that is withdrawn. */
  readonly onWithdrawn?: (typed: string) => void
}

export interface AnswerChoice<T extends string> {
  readonly value: T
  readonly label: string
  /** A letter that chooses it as well as its number. */
  readonly key?: 'y' | 'n'
}

/**
 * The value chosen, or null when the person pressed Esc or Ctrl-C, or the question was withdrawn.
 * @param onEnter what Enter alone chooses; only for what grants nothing
 * @param onText what a line of words chooses; only for what grants nothing. Absent: a line of words is not an answer
 */
export async function choose<T extends string>(
  io: PromptIo,
  message: string,
  choices: readonly AnswerChoice<T>[],
  onEnter?: NoInfer<T>,
  onText?: (typed: string) => NoInfer<T>,
): Promise<T | null> {
  const rows = choices.map(
    ({ label, key }, at) => `  ${at + 1}${key === undefined ? '' : ` or ${key}`} · ${label}`,
  )
  writeRows(io, [message, ...rows])
  const letters = choices.flatMap(({ key }) => key ?? [])
  const range = choices.length === 1 ? '1' : `1-${choices.length}`
  const expected = [range, ...letters].join(', ') + (onEnter === undefined ? '' : ' or Enter')
  const readWords = (typed: string) => (isWords.test(typed) ? onText?.(typed) : undefined)
  const read = (line: string, typed: string) => {
    if (line === '') return onEnter
    const named = choices.find(({ key }, at) => line === String(at + 1) || line === key)
    return named?.value ?? readWords(typed)
  }
  return await ask(io, `Type ${expected} › `, read, readWords)
}

/** Not a mistake such as `7` or `j`. */
const isWords = /\p{L}{2}/u

/** The values chosen by their numbers, which may be none; null as above. */
export async function chooseSeveral<T>(
  io: PromptIo,
  message: string,
  choices: readonly { readonly value: T; readonly label: string }[],
): Promise<T[] | null> {
  writeRows(io, [message, ...choices.map(({ label }, at) => `  ${at + 1} · ${label}`)])
  return await ask(io, 'Type numbers such as 1,3-5, or none › ', (line) => {
    const chosen = line === 'none' ? new Set<number>() : readNumbers(line, choices.length)
    return chosen === undefined
      ? undefined
      : choices.flatMap(({ value }, at) => (chosen.has(at + 1) ? [value] : []))
  })
}

/** Shows many rows a screen at a time. False when the person pressed Esc or Ctrl-C, or the question was withdrawn. */
export async function showPages(rows: readonly string[], io: PromptIo): Promise<boolean> {
  // The question below a page takes some rows, too.
  const pageRows = Math.max(5, (io.output.rows || 24) - 8)
  for (let from = 0; from < rows.length; ) {
    io.output.write(`${rows.slice(from, from + pageRows).join('\n')}\n`)
    from += pageRows
    if (from >= rows.length) return true
    const next = await choose(
      io,
      `Lines 1 to ${from} of ${rows.length}`,
      [
        { value: 'more', label: 'more' },
        { value: 'rest', label: 'all the rest' },
        { value: 'back', label: 'back to the question' },
      ],
      'more',
    )
    if (next === null) return false
    if (next === 'back') return true
    if (next === 'rest') {
      io.output.write(`${rows.slice(from).join('\n')}\n`)
      return true
    }
  }
  return true
}

/** What the person wrote, or null as above. @param initial text that is already there, to be edited */
export async function write(io: PromptIo, message: string, initial = ''): Promise<string | null> {
  writeRows(io, [message])
  const line = await readTyped(io, '› ', initial)
  if (line !== null && line.behind !== '') io.keepTyped?.(line.behind)
  return line?.text ?? null
}

/** Cells of the terminal's rows. */
export function columnsOf(output: { readonly columns?: number }): number {
  return output.columns || 80
}

/**
 * Asks until the line can be read. What follows a line that cannot be, such as the rest of a pasted text, answers nothing.
 * @param readPasted reads the first of several lines that came at once; only for what grants nothing
 */
async function ask<T>(
  io: PromptIo,
  prompt: string,
  read: (line: string, typed: string) => T | undefined,
  readPasted: (typed: string) => T | undefined = () => undefined,
): Promise<T | null> {
  for (;;) {
    const line = await readTyped(io, prompt)
    if (line === null) return null
    const text = line.text.trim()
    const isPasted = line.behind !== ''
    const value = isPasted ? readPasted(text) : read(text.toLowerCase(), text)
    if (value !== undefined) {
      if (isPasted) io.keepTyped?.(line.behind)
      return value
    }
    const isKept = (isPasted || isWords.test(text)) && io.keepTyped?.(`${text} ${line.behind}`) !== undefined
    const kept = isKept ? ' It is kept as your next message to the agent.' : ''
    if (isPasted) io.output.write(`Pasted lines are not accepted as an answer here.${kept}\n`)
    else if (text !== '') io.output.write(`“${sanitizeLine(text, 200)}” is not an answer here.${kept}\n`)
    await settleKeys(io)
  }
}

async function readTyped(
  io: PromptIo,
  prompt: string,
  initial = '',
): Promise<Extract<TypedLine, { kind: 'line' }> | null> {
  const typed = await readLine(io, prompt, initial)
  if (typed.kind === 'withdrawn') io.onWithdrawn?.(typed.text)
  return typed.kind === 'line' ? typed : null
}

function writeRows(io: PromptIo, lines: readonly string[]): void {
  const rows = lines.flatMap((line) => fitLine(line, columnsOf(io.output)))
  io.output.write(`${rows.join('\n')}\n`)
}

/** Numbers and ranges from 1 to `max`; undefined where the text is anything else. */
function readNumbers(line: string, max: number): Set<number> | undefined {
  const numbers = new Set<number>()
  for (const part of line.split(/[\s,]+/)) {
    const [, first = '', last = first] = /^(\d{1,6})(?:-(\d{1,6}))?$/.exec(part) ?? []
    const [from, to] = [Number(first), Number(last)]
    if (from < 1 || to > max || from > to) return undefined
    for (let number = from; number <= to; number++) numbers.add(number)
  }
  return numbers
}
