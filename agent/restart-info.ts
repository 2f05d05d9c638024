/**
 * Reads how earlier agent processes of this boot ended, as recorded by PID 1. An unreadable file counts as no record.
 */
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
  /** Number of restarts since boot. */
  restarts: number
  /** Description of the last end; absent when no process has ended yet. */
  lastExit?: string
}

/** Reads the file at `path`; without it this is the first process. */
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
