/** The line of a conversation, with history and completion. Lines that are pasted together are one task. */
import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { createInterface, type Key } from 'node:readline'
import type { Io } from '../io.ts'

/** `cleared` by Ctrl-C, `left` by Ctrl-D or the end of input. */
export type TaskLine =
  | { readonly kind: 'line'; readonly text: string }
  | { readonly kind: 'cleared'; readonly wasEmpty: boolean }
  | { readonly kind: 'left' }

export interface TaskLineOptions {
  /** Newest first. */
  readonly history: readonly string[]
  /** Commands with their slash. */
  readonly commands: readonly string[]
  /** Folder of the paths that are completed. */
  readonly folder: string
}

/** How long a terminal may take to hand over lines that were pasted together. */
const pasteMs = 40
/** Bracketed paste: the terminal sends marks around what is pasted. */
const marksPaste = '\u001b[?2004h'
const marksNoPaste = '\u001b[?2004l'
const completionsMax = 100
const historySize = 500

export async function readTaskLine(
  { stdin: input, stdout: output }: Pick<Io, 'stdin' | 'stdout'>,
  prompt: string,
  { history, commands, folder }: TaskLineOptions,
): Promise<TaskLine> {
  const { promise, resolve } = Promise.withResolvers<TaskLine>()
  const typed: string[] = []
  let timer: NodeJS.Timeout | undefined
  const lines = createInterface({
    input,
    output,
    prompt,
    terminal: true,
    history: [...history],
    historySize,
    completer: (line: string, done: (error: null, found: [string[], string]) => void) =>
      void complete(line, commands, folder).then((found) => done(null, found)),
  })
  // The terminal marks what is pasted, where it can: line ends in it begin nothing.
  let isPasting = false
  const onKey = (_: string | undefined, key: Key | undefined): void => {
    if (key?.name === 'paste-start') isPasting = true
    if (key?.name === 'paste-end') isPasting = false
  }
  input.prependListener('keypress', onKey)
  const finish = (): void => resolve({ kind: 'line', text: [...typed, lines.line].join('\n').trimEnd() })
  lines.on('line', (line) => {
    typed.push(line)
    clearTimeout(timer)
    if (!isPasting) timer = setTimeout(finish, pasteMs)
  })
  lines.once('SIGINT', () => resolve({ kind: 'cleared', wasEmpty: lines.line === '' }))
  lines.once('close', () => (typed.length > 0 ? finish() : resolve({ kind: 'left' })))
  try {
    output.write(marksPaste)
    lines.prompt()
    const read = await promise
    if (read.kind !== 'line') output.write('\n')
    return read
  } finally {
    clearTimeout(timer)
    input.off('keypress', onKey)
    output.write(marksNoPaste)
    lines.close()
  }
}

/** Commands at the beginning of the line; paths after `@`, and as arguments of a command. */
export async function complete(
  line: string,
  commands: readonly string[],
  folder: string,
): Promise<[string[], string]> {
  if (/^\/\S*$/.test(line)) return [commands.filter((command) => command.startsWith(line)), line]
  const word = /\S*$/.exec(line)?.[0] ?? ''
  const mark = word.startsWith('@') ? '@' : ''
  if (mark === '' && !line.startsWith('/')) return [[], word]
  const given = word.slice(mark.length)
  const parent = given.slice(0, given.lastIndexOf('/') + 1)
  const entries = await readdir(path.resolve(folder, parent || '.'), { withFileTypes: true }).catch(() => [])
  const found = entries
    .map((entry) => `${parent}${entry.name}${entry.isDirectory() ? '/' : ''}`)
    // A name with a blank would be two words, and one with control characters could change the terminal.
    .filter((name) => name.startsWith(given) && !/[\s\p{Cc}\p{Cf}]/u.test(name))
    .filter(
      (name) => given.slice(parent.length).startsWith('.') || !name.slice(parent.length).startsWith('.'),
    )
  return [
    found
      .toSorted()
      .slice(0, completionsMax)
      .map((name) => `${mark}${name}`),
    word,
  ]
}
