/** Code of workflow functions that misbehaves. */
import { hostileJavascript } from './hostile-javascript.ts'
import { hostilePython } from './hostile-python.ts'
import type { HostileRow } from './hostile-row.ts'

export interface HostileCode extends HostileRow {
  readonly language: 'javascript' | 'python'
}

export const hostileCode: readonly HostileCode[] = [
  ...hostileJavascript.map((row) => ({ ...row, language: 'javascript' as const })),
  ...hostilePython.map((row) => ({ ...row, language: 'python' as const })),
]
