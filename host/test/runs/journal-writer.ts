// Writes a journal under a bound on the size of files until lines are refused, lifts the bound and writes the end.
import { execFileSync } from 'node:child_process'
import path from 'node:path'
import { noUsage } from '#specs/protocol/task.ts'
import { Journal } from '../../journal/journal.ts'

const [file = '', runId = ''] = process.argv.slice(2)
const journal = await Journal.open({ runId, path: file, locks: path.dirname(file) })
let refused = 0
let kept = 0
while (refused < 3) {
  const event = { type: 'note', level: 'info', text: 'x'.repeat(900) } as const
  await journal.append({ source: 'agent', agentPath: 'root', n: 1, event }).then(
    () => {
      kept += 1
    },
    () => {
      refused += 1
    },
  )
}
execFileSync('prlimit', [`--pid=${process.pid}`, '--fsize=unlimited:unlimited'])
const end = { outcome: 'failed', reason: 'environment', message: '', summary: '' } as const
await journal.append({ source: 'host', event: { type: 'run-end', ...end, usage: noUsage, durationMs: 1 } })
await journal.close()
process.stdout.write(JSON.stringify({ refused, kept: kept + 1 }))
