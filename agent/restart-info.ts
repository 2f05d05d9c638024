/** How earlier agent processes of this boot ended, as PID 1 writes it down. Refuses nothing: a file that cannot be read says nothing. */
import { readFileSync } from 'node:fs'
import * as z from 'zod'
import { limits } from '#specs/protocol/limits.ts'
import { Count } from '#specs/protocol/text.ts'
import { truncate } from './text/truncate.ts'

const Exits = z.object({
  restarts: Count,
  last: z
    .object({
      code: z.int().nullable(),
      signal: z.string().nullable(),
      stderrTail: z.string(),
    })
    .nullable(),
})

export interface AgentExits {
  /** Starts after the first, since boot. */
  restarts: number
  /** In words; absent when no process has ended yet. */
  lastExit?: string
}

/** What the file at `path` says; without one this is the first process. */
export function readExits(path: string | undefined): AgentExits {
  if (path === undefined) return { restarts: 0 }
  try {
    const { restarts, last } = Exits.parse(JSON.parse(readFileSync(path, 'utf8')))
    if (last === null) return { restarts }
    const how = last.signal === null ? `exit code ${last.code ?? 'unknown'}` : `signal ${last.signal}`
    const tail = last.stderrTail.trim()
    const text = tail === '' ? how : `${how}; the end of its stderr:\n${tail}`
    return { restarts, lastExit: truncate(text, limits.textMaxChars) }
  } catch {
    return { restarts: 0 }
  }
}
