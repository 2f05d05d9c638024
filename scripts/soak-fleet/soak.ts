/**
 * A fleet of `caisson serve --fleet` processes and a real PostgreSQL, with random runs, questions and losses until all runs
 * have ended; then what must hold is checked.
 * `npm run soak:fleet -- [--seed N] [--minutes M] [--runs N] [--hosts N] [--json]`. One line for each loss and each run, a
 * table of the times of recovery by cause; the exit code is 1 where anything did not hold.
 */
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { parseFleetAddress } from '../../host/fleet/address.ts'
import { Fleet } from '../../host/fleet/fleet.ts'
import { startModelServer } from '../../specs/testing/model-server.ts'
import { installMachine } from '../../test/recovery/machine/install.ts'
import { PostgresServer } from '../../test/support/postgres.ts'
import { Random } from '../soak/random.ts'
import { answer } from '../soak/tasks.ts'
import { type Cause, causes, drawSkew, strike } from './faults.ts'
import { FleetHost } from './fleet-host.ts'
import { People } from './people.ts'
import { Recoveries } from './recoveries.ts'
import { drawTask, type FleetTask, Outside } from './tasks.ts'
import { findBreaches } from './verdict.ts'

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: String(Math.floor(Date.now() / 1_000) % 1_000_000) },
    minutes: { type: 'string', default: '30' },
    runs: { type: 'string', default: '200' },
    hosts: { type: 'string', default: '4' },
    json: { type: 'boolean', default: false },
  },
})
const [seed, minutes, runCount, hostCount] = [values.seed, values.minutes, values.runs, values.hosts].map(
  Number,
) as [number, number, number, number]
if (
  !Number.isSafeInteger(seed) ||
  !(minutes > 0) ||
  !(runCount >= 1) ||
  !(hostCount >= 2 && hostCount <= 8)
) {
  console.error(
    'soak:fleet: --seed and --runs need whole numbers, --minutes a number above 0, --hosts 2 to 8',
  )
  process.exit(2)
}
const tell = (text: string): void => void process.stderr.write(`${text}\n`)
const isRoot = process.getuid?.() === 0
/** Only root can make a small disk. */
const possible = causes.filter((cause) => isRoot || cause !== 'full disk') as unknown as [Cause, ...Cause[]]
/** After the losses are over, all runs must end within this time. */
const settleMs = 240_000

const random = new Random(seed)
const folder = await mkdtemp(path.join(tmpdir(), 'caisson-soak-fleet-'))
const breaches: string[] = []
const runs = new Map<string, FleetTask>()
tell(`soak:fleet: seed ${seed}, ${minutes} minutes, ${runCount} runs, ${hostCount} hosts, state in ${folder}`)
let recoveries: Recoveries | undefined
{
  await using database = await PostgresServer.start()
  await using model = await startModelServer(answer)
  await using outside = await Outside.open()
  const place = path.join(folder, 'machine')
  await mkdir(place)
  const machine = await installMachine(place)
  const env = {
    ...process.env,
    PATH: `${machine.programs}:${process.env.PATH}`,
    CAISSON_CACHE: machine.cache,
    CAISSON_LLM_URL: model.baseUrl,
    CAISSON_LLM_KEY: 'sk-some-key-of-the-soak',
    CAISSON_MODEL: 'scripted',
  }
  const databaseFolder = new URL(database.address.replace('///', '//x/')).searchParams.get('host') ?? ''
  const own = { name: 'soak', version: 'soak', slots: 0, warn: () => undefined }
  await using fleet = await Fleet.open(parseFleetAddress(database.address, 'the soak'), own)
  await using stack = new AsyncDisposableStack()
  const hosts: FleetHost[] = []
  for (let index = 1; index <= hostCount; index += 1) {
    const host = await FleetHost.open({
      ...{ folder, name: `host${index}`, database: databaseFolder, env, blobs: path.join(folder, 'blobs') },
      ...{ machines: machine.place, hasOwnDisk: isRoot },
    })
    stack.use(host)
    hosts.push(host)
    await host.start(drawSkew(random))
  }
  recoveries = new Recoveries(fleet)
  stack.use(recoveries)
  const people = new People(new Random(seed + 1), hosts)
  const over = new AbortController()
  const answering = people.answer(over.signal)
  const until = performance.now() + minutes * 60_000
  const losses = lose(hosts, database, until)
  await startRuns(people, outside.port)
  await losses
  await settle(fleet)
  over.abort()
  await answering
  for (const [runId, task] of runs) {
    const found = await findBreaches({ fleet, outside, people }, runId, task, folder)
    tell(`${task.name} ${runId}: ${found.join('; ') || 'whole'}`)
    breaches.push(...found.map((breach) => `${task.name} ${runId}: ${breach}`))
  }
  for (const [question, times] of people.taken)
    if (times > 1) breaches.push(`${question}: ${times} answers were taken`)
  for (const host of hosts) {
    if (!(await host.drain())) breaches.push(`${host.name} did not end within a minute of SIGTERM`)
    breaches.push(...host.findLeft())
  }
}
const figures = recoveries?.describe() ?? {}
if (breaches.length === 0) await rm(folder, { recursive: true, force: true })
else tell(`soak:fleet: kept for a look: ${folder} with ${(await readdir(folder)).join(', ')}`)
for (const breach of breaches) tell(`VIOLATION ${breach}`)
tell(`soak:fleet: ${runs.size} runs, ${breaches.length} violations, seed ${seed}`)
if (values.json)
  console.log(
    JSON.stringify({ seed, minutes, runs: runs.size, hosts: hostCount, recoveries: figures, breaches }),
  )
else console.table(figures)
process.exitCode = breaches.length > 0 || runs.size === 0 ? 1 : 0

/** Each run starts at a random time within its own share of the minutes, so all of them start. */
async function startRuns(people: People, port: number): Promise<void> {
  const begin = performance.now()
  const shareMs = (minutes * 60_000) / runCount
  for (let index = 0; index < runCount; index += 1) {
    const task = drawTask(random, `task${index}`, port)
    await sleep(Math.max(0, begin + (index + random.next()) * shareMs - performance.now()))
    void people.start(task, port).then(
      (runId) => runs.set(runId, task),
      (error: unknown) => breaches.push(`${task.name} was refused: ${String(error)}`),
    )
  }
}

/** One after another for the database, and side by side at the hosts; always leaves one host alone. */
async function lose(hosts: readonly FleetHost[], database: PostgresServer, until: number): Promise<void> {
  const losses = new Random(seed + 2)
  const struck = new Map<FleetHost | undefined, Promise<void>>()
  while (performance.now() < until) {
    await sleep(losses.between(2_000, 8_000))
    const cause = losses.of(possible)
    const free = hosts.filter((host) => !struck.has(host))
    const host = losses.of(free as [FleetHost, ...FleetHost[]])
    const target = cause === 'restart of PostgreSQL' ? undefined : host
    if (struck.has(target) || (target !== undefined && free.length <= 1)) continue
    const struckNow = strike(cause, {
      ...{ random: losses, host, database },
      onFault: (fault) => {
        tell(`${cause}${target === undefined ? '' : ` of ${host.name}`}`)
        recoveries?.begin(fault)
      },
    })
      .catch((error: unknown) => void breaches.push(`${cause} of ${host.name}: ${String(error)}`))
      .finally(() => struck.delete(target))
    struck.set(target, struckNow)
  }
  await Promise.all(struck.values())
}

async function settle(fleet: Fleet): Promise<void> {
  const until = performance.now() + settleMs
  for (;;) {
    const { ended } = await fleet.status()
    if (ended >= runs.size && runs.size > 0) return
    if (performance.now() > until) {
      breaches.push(`${runs.size - ended} runs did not end within ${settleMs / 1_000} s after the last loss`)
      return
    }
    await sleep(500)
  }
}
