// A host process of the tests with a state folder of its own: pulls runs of the scenario out of a fleet, until it is ended.
import { once } from 'node:events'
import { parseFleetAddress } from '../../host/fleet/address.ts'
import { DirectoryBlobs } from '../../host/fleet/blob-store.ts'
import { Fleet } from '../../host/fleet/fleet.ts'
import { makerOf } from '../../host/fleet-member.ts'
import { FleetRuns, type Segment } from '../../host/fleet-runs/fleet-runs.ts'
import { Host } from '../../host/host.ts'
import { accompany, optionsOf, resumeRun, type Scene } from '../recovery/scenario.ts'

export interface FleetOrder {
  readonly scene: Scene
  readonly env: Readonly<Record<string, string>>
  readonly address: string
  readonly blobs: string
  readonly name: string
}

const [order] = (await once(process, 'message')) as [FleetOrder]
const { scene, env, address, blobs, name } = order
const warn = (text: string) => void process.stderr.write(`${text}\n`)
const options = { name, version: 'test', slots: 1, warn }
const fleet = await Fleet.open(parseFleetAddress(address, 'the test'), options)
const fences = new FleetRuns(fleet, new DirectoryBlobs(blobs))
const host = new Host({ env: { ...process.env, ...env }, fences })
const begin = async ({ runId, isNew }: Segment) => {
  const run = await (isNew ? host.runAs(runId, optionsOf(scene)) : resumeRun(host, runId, scene))
  void accompany(host, run, scene).catch(() => undefined)
  return run
}
await fences.work(host.runs, begin, {}, makerOf(host))
process.send?.('ready')
