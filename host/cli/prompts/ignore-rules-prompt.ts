/** Before a run at a terminal: whether paths go in that only an earlier run's change of the ignore rules lets in. */

import { formatCount } from '../../files/format.ts'
import type { Host } from '../../host.ts'
import type { Io } from '../io.ts'
import { sanitizeLine } from '../render/sanitize.ts'
import { choose } from './ask.ts'
import { settleKeys } from './terminal-input.ts'

/** Paths that are listed. */
const LISTED = 10

/** @returns true when the person lets them in; false where there are none, and when they stay out */
export async function askRules(
  io: Io,
  host: Host,
  workspace: string | undefined,
  quietMs?: number,
): Promise<boolean> {
  const held = await host.heldByRules(workspace)
  if (held.paths.length === 0) return false
  const shown = held.paths.slice(0, LISTED).map((path) => `  ${sanitizeLine(path, 200)}`)
  const more = held.paths.length - shown.length
  io.stdout.write(
    [
      `The ignore rules as changed by ${held.runs.join(', ')} include ${formatCount(held.paths.length, 'path')} that earlier runs left out of the VM:`,
      ...shown,
      ...(more > 0 ? [`  … ${more} more`] : []),
      '',
    ].join('\n'),
  )
  const { signal } = new AbortController()
  const prompt = { input: io.stdin, output: io.stdout, signal, ...(quietMs === undefined ? {} : { quietMs }) }
  await settleKeys(prompt)
  const answer = await choose(prompt, 'Copy them into the VM?', [
    { value: 'out', key: 'n', label: 'no, leave them out and ask again next time' },
    { value: 'in', key: 'y', label: 'yes, in this and later runs; accept the changed ignore rules' },
  ])
  return answer === 'in'
}
