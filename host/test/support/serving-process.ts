/** Has a run with its control socket, as a host process does. A line of standard input ends the run. */
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { noUsage } from '#specs/protocol/task.ts'
import { ControlServer } from '../../control/server.ts'
import { Host } from '../../host.ts'
import { RunRecord } from '../../journal/run-record.ts'

const host = new Host()
const record = await RunRecord.open(host.runs.paths(process.argv[2] ?? ''))
const ended = Promise.withResolvers<typeof record.state>()
const refuse = () => Promise.reject(new Error('nothing is done here'))
const server = await ControlServer.open(record.paths.control, {
  run: {
    ...{ answer: refuse, revokeAnswer: refuse, fork: refuse, cancel: refuse, cancelAgent: refuse },
    ...{ steer: refuse, pause: refuse, resume: refuse, ended: ended.promise, journalHead: '' },
    watch: () => record.feed.watch(),
    hasPendingApproval: () => false,
  },
})
process.stdout.write('open\n')
await once(createInterface({ input: process.stdin }), 'line')
await record.host({
  type: 'run-end',
  ...{ outcome: 'completed', reason: 'completed', message: '', summary: 'done' },
  ...{ usage: noUsage, durationMs: 1 },
})
await record[Symbol.asyncDispose]()
ended.resolve(record.state)
await server[Symbol.asyncDispose]()
process.exit(0)
