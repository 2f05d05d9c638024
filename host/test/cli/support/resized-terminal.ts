/** The far side of `resize.test.ts`: a run on a screen, with lines above and a live area below. Prints its terminal first. */
import { readlinkSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { ProgressView } from '../../../cli/render/progress.ts'

const [count = '', pauseMs = ''] = process.argv.slice(2)
process.stdout.write(`terminal ${readlinkSync('/proc/self/fd/1')}\n`)
const view = new ProgressView(process.stdout)
view.offer('Enter: message, pause; a long offer, so that this row is as wide as many a terminal')
let offset = 0
for (let at = 1; at <= Number(count); at++) {
  view.lines([`line ${at} of the run`])
  const text = `${'what the model writes now '.repeat(1 + (at % 6))}\n`
  view.show({
    source: 'delta',
    runId: 'run-00000000000000000001',
    agentPath: 'root',
    delta: { type: 'text-delta', stepId: 's', turn: 1, offset, text },
  })
  offset += text.length
  await sleep(Number(pauseMs))
}
view[Symbol.dispose]()
process.stdout.write('the end\n')
