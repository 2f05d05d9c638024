/**
 * Random runs, two at a time in real VMs and one in the machine of the recovery tests, with random losses, until the time
 * is over; then what must hold is checked.
 * `npm run soak -- [--seed N] [--minutes M] [--json]`. One line for each run, a table of causes with the times of
 * recovery, the slope of the host's memory; the exit code is 1 where anything did not hold.
 */
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { startModelServer } from '../../specs/testing/model-server.ts'
import { installMachine } from '../../test/recovery/machine/install.ts'
import { type Cause, findQemus } from './faults.ts'
import { Lane, type RunRecord } from './lane.ts'
import { Random } from './random.ts'
import { describeCauses, findSlopes, findSteadyBreaches } from './report.ts'
import { answer } from './tasks.ts'

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: String(Math.floor(Date.now() / 1_000) % 1_000_000) },
    minutes: { type: 'string', default: '10' },
    json: { type: 'boolean', default: false },
  },
})
const [seed, minutes] = [Number(values.seed), Number(values.minutes)]
if (!Number.isSafeInteger(seed) || !(minutes > 0 && minutes <= 24 * 60)) {
  console.error('soak: --seed needs a whole number, --minutes a number from 0 to 1440')
  process.exit(2)
}
const tell = (text: string): void => void process.stderr.write(`${text}\n`)

const isRoot = process.getuid?.() === 0
/** The host process of this lane lives as long as the soak; only root can make a small disk. */
const steadyCauses: [Cause, ...Cause[]] = [
  ...(['nothing', 'QEMU', 'QEMU twice', 'QEMU stands still', 'host stands still', 'link'] as const),
  ...(isRoot ? (['full disk'] as const) : []),
]
const killedCauses: [Cause, ...Cause[]] = [
  ...(['host', 'host', 'host of a saved VM', 'host of a sleeping run'] as const),
  ...(['QEMU', 'host stands still', 'link'] as const),
]
/** Of the lane whose VM is a program of the recovery tests. */
const machineCauses: [Cause, ...Cause[]] = ['agent', 'agent', 'link', 'host of a sleeping run', 'QEMU twice']
/** Its runs are quick: those of the real VMs need the processors. */
const machinePauseMs = 2_000

let isStopped = false
for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.once(signal, () => {
    tell('soak: ends with the runs at work; press again to end at once')
    isStopped = true
  })

const folder = await mkdtemp(path.join(tmpdir(), 'caisson-soak-'))
const records: RunRecord[] = []
const breaches: string[] = []
tell(`soak: seed ${seed}, ${minutes} minutes, state in ${folder}`)
if (!isRoot) tell('soak: full disks are left out, as they need root')
{
  await using model = await startModelServer(answer)
  const open = (name: string, number: number, causes: [Cause, ...Cause[]], own = {}): Lane =>
    new Lane({ name, folder, modelUrl: model.baseUrl, random: new Random(seed * 3 + number), causes, ...own })
  await using steady = open('a', 0, steadyCauses)
  await using killed = open('b', 1, killedCauses)
  const place = path.join(folder, 'machine')
  await mkdir(place)
  await using simulated = open('c', 2, machineCauses, { machine: await installMachine(place) })
  add(await steady.run(true))
  const until = performance.now() + minutes * 60_000
  await Promise.all([work(steady, until), work(killed, until), work(simulated, until, machinePauseMs)])
  breaches.push(...findSteadyBreaches(steady.measured))
  report(steady)
}
const left = (await readdir(folder)).filter((name) => name.startsWith('home-'))
for (const home of left)
  breaches.push(...findQemus(path.join(folder, home)).map((pid) => `QEMU ${pid} runs after the soak`))
await rm(folder, { recursive: true, force: true })
for (const breach of breaches) tell(`VIOLATION ${breach}`)
tell(`soak: ${records.length} runs, ${breaches.length} violations, seed ${seed}`)
process.exitCode = breaches.length > 0 || records.length === 0 ? 1 : 0

async function work(lane: Lane, until: number, pauseMs = 0): Promise<void> {
  while (!isStopped && performance.now() < until) {
    await sleep(pauseMs)
    add(await lane.run())
    await lane.measure()
  }
}

function add(record: RunRecord): void {
  const { name, cause, struck, tookMs, recoveryMs, breaches: seen } = record
  records.push(record)
  breaches.push(...seen.map((breach) => `${name} (${cause}): ${breach}`))
  const recovered = recoveryMs.map((ms) => `${ms} ms`).join(', ') || '-'
  const how = struck ? cause : `${cause}, too late`
  tell(`${name} ${how}: ${Math.round(tookMs)} ms, recovery ${recovered}: ${seen.join('; ') || 'whole'}`)
}

function report(steady: Lane): void {
  const causes = describeCauses(records)
  const slopes = findSlopes(steady.measured)
  if (values.json)
    console.log(JSON.stringify({ seed, minutes, runs: records.length, causes, slopes, breaches }))
  else {
    console.table(causes)
    console.table(slopes)
  }
}
