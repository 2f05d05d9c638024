/** One prompt at the terminal: a choice or a text, taken back when it is withdrawn. */
import type { Readable, Writable } from 'node:stream'
import { select, text } from '@clack/prompts'
import { strikeOut } from './strike-out.ts'

export interface PromptIo {
  readonly input: Readable & { isTTY?: boolean }
  readonly output: Writable & { isTTY?: boolean; columns?: number; rows?: number }
  /** Withdraws the question. */
  readonly signal: AbortSignal
}

/** The value chosen, or null when the person pressed Esc or Ctrl-C, or the question was withdrawn. */
export function choose<T extends string>(
  io: PromptIo,
  message: string,
  initialValue: NoInfer<T>,
  options: { value: T; label: string }[],
): Promise<T | null> {
  // The library's types look into each value for a label; all of ours have one.
  return prompt(io, (streams) =>
    select<string>({ message, options, initialValue, ...streams }),
  ) as Promise<T | null>
}

/** What the person wrote, or null as above. @param initialValue stands there already */
export function write(io: PromptIo, message: string, initialValue = ''): Promise<string | null> {
  return prompt(io, (streams) => text({ message, initialValue, ...streams }))
}

/** Cells of the terminal's rows. */
export function columnsOf(output: { readonly columns?: number }): number {
  return output.columns || 80
}

async function prompt(
  { input, output, signal }: PromptIo,
  open: (streams: { input: Readable; output: Writable }) => Promise<string | symbol>,
): Promise<string | null> {
  if (signal.aborted) return null
  using _ = strikeOut(input, signal)
  const answer = await open({ input, output })
  return typeof answer === 'string' ? answer : null
}
