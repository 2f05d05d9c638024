/** Opens the journal of a run and appends a line for each line of standard input, `end` for its end; says what became of each. */
import { createInterface } from 'node:readline'
import { errorMessage } from '#specs/errors.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { noUsage } from '#specs/protocol/task.ts'
import { Host } from '../../host.ts'
import { RunRecord } from '../../journal/run-record.ts'

const end: HostEvent = {
  type: 'run-end',
  ...{ outcome: 'cancelled', reason: 'cancelled', message: '', summary: '' },
  ...{ usage: noUsage, durationMs: 1 },
}
const host = new Host()
const record = await RunRecord.open(host.runs.paths(process.argv[2] ?? ''))
process.stdout.write('open\n')
for await (const by of createInterface({ input: process.stdin })) {
  const event = by === 'end' ? end : ({ type: 'cancel-request', by } as const)
  const said = await record.host(event).then(
    () => 'written',
    (error: unknown) => `refused: ${errorMessage(error)}`,
  )
  process.stdout.write(`${said}\n`)
}
await record[Symbol.asyncDispose]()
