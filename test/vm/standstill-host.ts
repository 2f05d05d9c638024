// A host process that a test stops: carries out one run and prints each of its lines.

import { defaultTimings, type LinkTimings } from '../../host/guest/sessions.ts'
import { Host } from '../../host/host.ts'

export interface StandstillOrder {
  readonly workspace: string
  readonly timings: Partial<LinkTimings>
  /** Of a server on this machine that programs of the guest may reach. */
  readonly port: number
}

const { workspace, timings, port } = JSON.parse(process.argv[2] ?? '') as StandstillOrder
Object.assign(defaultTimings, timings)
const host = new Host()
const run = await host.run({
  prompt: 'Do what stands in the script',
  workspace,
  approvals: { interactive: false },
  egress: { rules: [{ effect: 'allow', host: '127.0.0.1', schemes: ['http'], ports: [port] }] },
  vm: { memoryBytes: 512 * 1024 ** 2, recoveries: 0 },
  onNotes: () => undefined,
})
for await (const item of run.watch()) console.log(JSON.stringify(item))
const { outcome, message } = await run.result()
console.log(JSON.stringify({ outcome, message }))
await host.close()
