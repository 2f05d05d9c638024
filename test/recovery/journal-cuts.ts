/**
 * Says of each line of a journal when it is about to be written, and when the system has it, before its writer continues.
 * It stands between the host's code and the file system, so a kill falls exactly there.
 */
import { open } from 'node:fs/promises'
import * as z from 'zod'

const Line = z.looseObject({
  seq: z.number(),
  runId: z.string(),
  prev: z.string(),
  event: z.looseObject({ type: z.string() }),
})

export interface CutLine {
  readonly seq: number
  readonly runId: string
  readonly type: string
}

/** `torn`: half of the line is in the file. */
export type Cut = 'before' | 'torn' | 'after'
export const cuts = ['before', 'torn', 'after'] as const

type Append = (data: unknown, options?: unknown) => Promise<void>

/**
 * @param onLine `torn` is called only where `isTorn` says so, after half of the line was written
 * @returns what ends the watch
 */
export async function watchLines(
  onLine: (line: CutLine, cut: Cut) => void,
  isTorn: (line: CutLine) => boolean = () => false,
): Promise<Disposable> {
  await using some = await open('/dev/null')
  const prototype = Object.getPrototypeOf(some) as { appendFile: Append }
  const append = prototype.appendFile
  prototype.appendFile = async function (this: unknown, data, options) {
    const line = readLine(data)
    if (line === undefined) return await append.call(this, data, options)
    onLine(line, 'before')
    const text = String(data)
    const written = isTorn(line) ? text.length / 2 : 0
    if (written > 0) {
      await append.call(this, text.slice(0, written), options)
      onLine(line, 'torn')
    }
    await append.call(this, text.slice(written), options)
    onLine(line, 'after')
  }
  return {
    [Symbol.dispose]: () => {
      prototype.appendFile = append
    },
  }
}

function readLine(data: unknown): CutLine | undefined {
  if (typeof data !== 'string' || !data.startsWith('{"seq":')) return undefined
  const parsed = Line.safeParse(JSON.parse(data))
  return parsed.success ? { ...parsed.data, type: parsed.data.event.type } : undefined
}
