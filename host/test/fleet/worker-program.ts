// A host process of the tests: pulls runs of a fleet, and does the steps of each. A step is an intent in the journal, an
// effect outside (a line of a ledger), and its outcome in the journal.
import { appendFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { hasCode } from '#specs/errors.ts'
import { parseFleetAddress } from '../../fleet/address.ts'
import { Fleet } from '../../fleet/fleet.ts'
import { readRows } from '../../fleet/journal-rows.ts'
import type { Hold } from '../../fleet/run-table.ts'
import { noteOf, rowsBehind } from './fleet-place.ts'

const [connection = '', name = '', ledger = '', steps = '5', stepMs = '300', longStep = ''] =
  process.argv.slice(2)
const warn = (text: string) => void process.stderr.write(`${text}\n`)
const fleet = await Fleet.open(parseFleetAddress(connection, 'the test'), {
  ...{ name, version: '1', slots: 2, warn },
})
await fleet.work((hold, { lost }) => drive(hold, lost))
process.send?.('ready')

async function drive(hold: Hold, signal: AbortSignal): Promise<'ended' | 'again'> {
  const { runId } = hold
  const done = new Set<string>()
  let end = { seq: 0, hash: '0'.repeat(64) }
  for await (const { event, end: at } of readRows(fleet.database, fleet.runs, runId)) {
    end = at
    const { event: said } = event
    if (said.type !== 'vm-keep-failed') continue
    // A step that began and has no outcome is not done again: nobody knows what became of it.
    const [step = ''] = said.message.split(' ')
    done.add(step)
  }
  const note = async (text: string, ends = false) => {
    const rows = rowsBehind(runId, end, [noteOf(text)])
    await fleet.runs.append(hold, rows, { ends })
    end = rows[0] ?? end
  }
  try {
    for (let step = 1; step <= Number(steps); step += 1) {
      if (done.has(`${step}`)) continue
      await note(`${step} begins on ${name}`)
      appendFileSync(ledger, `${runId} ${step} ${name}\n`)
      await sleep(step === Number(longStep) ? 5_000 : Number(stepMs))
      await note(`${step} ends`)
    }
    await note('end', true)
  } catch (error) {
    appendFileSync(`${ledger}.refused`, `${name} ${hasCode(error, 'run_busy')} ${signal.aborted}\n`)
    return 'again'
  }
  return 'ended'
}
