// A process with one run that is exported as the environment says, and that closes nothing afterwards.
import { Feed } from '../../journal/run-feed.ts'
import { directNetwork } from '../../net/network.ts'
import { openTraces } from '../../traces/traces.ts'
import { journalOf, modelEnd, modelStart, runEnd, runId, runStart, toolEnd } from './support.ts'

const { traces } = openTraces(process.env, directNetwork)
const feed = new Feed()
traces?.observe(feed, { runId, redact: String, note: (text) => console.error(text) })
const lines = journalOf([
  [0, runStart()],
  [10, modelStart('model-1', 1)],
  [20, modelEnd('model-1')],
  [30, toolEnd('c1', 'math'), 'root'],
  [40, runEnd()],
])
for (const line of lines) feed.push(line)
feed.end()
console.log('the run has ended')
