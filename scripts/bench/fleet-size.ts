/**
 * A fleet with very many runs that wait: they are put into the real tables, and what hosts and people ask for is timed on
 * them, with the fleet's own code. Virtual hosts then take runs, end them and fail, and the fair order is checked.
 * `node --conditions=caisson-source scripts/bench/fleet-size.ts [--runs 1000000] [--lanes 1000] [--takes 2000] [--seed 1]
 *   [--unservable 50000] [--people 100000] [--ended 300000]`
 */
import { parseArgs } from 'node:util'
import { printFigures, reportProgress } from './figures.ts'
import { newDatabase, openObserver, startServer } from './fleet-place.ts'
import { addWaitingRuns, tableBytes } from './fleet-rows.ts'
import { simulateHosts } from './fleet-simulation.ts'
import { timeStatements, timeVacuum } from './fleet-statements.ts'

const { values } = parseArgs({
  options: {
    runs: { type: 'string', default: '1000000' },
    lanes: { type: 'string', default: '1000' },
    unservable: { type: 'string', default: '50000' },
    people: { type: 'string', default: '100000' },
    ended: { type: 'string', default: '300000' },
    takes: { type: 'string', default: '2000' },
    seed: { type: 'string', default: '1' },
    json: { type: 'boolean', default: false },
  },
})

await using server = await startServer()
const address = await newDatabase(server)
await using fleet = await openObserver(address)
const { database } = fleet
reportProgress(`${values.runs} runs that wait, in ${values.lanes} lanes`)
const added = await addWaitingRuns(fleet, {
  runs: Number(values.runs),
  lanes: Number(values.lanes),
  seed: Number(values.seed),
  unservable: Number(values.unservable),
  people: Number(values.people),
  ended: Number(values.ended),
})
const bytes = await tableBytes(database)
reportProgress('vacuum')
const firstVacuum = await timeVacuum(database)
reportProgress('statements')
const statements = await timeStatements(fleet, address)
reportProgress('virtual hosts')
const simulated = await simulateHosts(fleet, address, {
  takes: Number(values.takes),
  seed: Number(values.seed),
})
printFigures({
  ...added,
  bytes,
  firstVacuum,
  ...statements,
  simulated,
  lastVacuum: await timeVacuum(database),
})
