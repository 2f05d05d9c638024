/**
 * Takes what is typed at a terminal without showing it, for as long as a status line is drawn there: an echo would stand in the
 * middle of it. The keys by which a terminal interrupts, ends or stops a program still do.
 */
import type { Readable } from 'node:stream'
import { StringDecoder } from 'node:string_decoder'
import { stripVTControlCharacters } from 'node:util'

export type KeyInput = Readable & { isTTY?: boolean; setRawMode?: (isRaw: boolean) => unknown }

/** Control characters that a terminal makes signals of, where it does not hand over each key. */
const signals: Readonly<Record<string, NodeJS.Signals>> = {
  '\u0003': 'SIGINT',
  '\u001c': 'SIGQUIT',
  '\u001a': 'SIGTSTP',
}

/** Disposed, it gives the terminal back as it was, paused. */
export interface TakenKeys extends Disposable {
  /** Leaves the terminal as it is for whoever takes the keys next: given back in between, it would show those of that moment. */
  handOver(): void
}

/** @param onKeys what was typed, but for those keys */
export function captureInput(input: KeyInput, onKeys: (keys: string) => void): TakenKeys {
  const isTerminal = input.isTTY === true && input.setRawMode !== undefined
  const setRaw = (isRaw: boolean): void => {
    if (isTerminal) input.setRawMode?.(isRaw)
  }
  const onContinue = (): void => setRaw(true)
  // A character can come in two pieces.
  const decoder = new StringDecoder('utf8')
  const onData = (chunk: Uint8Array | string): void => {
    let keys = ''
    for (const key of typeof chunk === 'string' ? chunk : decoder.write(Buffer.from(chunk))) {
      const signal = signals[key]
      if (signal === undefined || !isTerminal) keys += key
      else raise(signal, setRaw)
    }
    if (keys !== '') onKeys(keys)
  }
  setRaw(true)
  // Who was stopped finds the terminal as a shell left it.
  process.on('SIGCONT', onContinue)
  input.on('data', onData)
  input.resume()
  let isTaken = true
  const handOver = (): void => {
    isTaken = false
    process.off('SIGCONT', onContinue)
    input.off('data', onData)
    input.pause()
  }
  return {
    handOver,
    [Symbol.dispose]: () => {
      if (!isTaken) return
      handOver()
      setRaw(false)
    },
  }
}

function raise(signal: NodeJS.Signals, setRaw: (isRaw: boolean) => void): void {
  if (signal === 'SIGINT') {
    process.kill(process.pid, signal)
    return
  }
  // The shell that takes over needs its terminal; as the terminal itself would, the whole job is stopped.
  setRaw(false)
  process.kill(0, signal)
}

/** A line as it was typed key by key: a backspace takes the last character back, Ctrl-U all, Ctrl-W the last word. */
export function editLine(keys: string): string {
  let line = ''
  for (const key of keys) {
    if (key === '\u007f' || key === '\b') line = [...line].slice(0, -1).join('')
    else if (key === '\u0015') line = ''
    else if (key === '\u0017') line = line.replace(/\S*\s*$/, '')
    else line += key
  }
  return line
}

/** The text of keys as one line, without the keys that write nothing; a line end is a blank. */
export function plainText(keys: string): string {
  return stripVTControlCharacters(editLine(keys.replace(/[\r\n]+/g, ' '))).replace(/\p{Cc}/gu, '')
}
