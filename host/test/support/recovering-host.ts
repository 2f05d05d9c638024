// A host process for tests of recovery: starts a run, or continues it, and ends with it. Its host tool writes to a
// ledger that no victim holds. It kills itself, or QEMU, when the journal has the line that its order names.

import { appendFileSync } from 'node:fs'
import * as z from 'zod'
import { Host, type RunOptions } from '../../host.ts'
import { findQemu } from './vm-processes.ts'

export interface RecoveringOrder {
  /** Absent: the run is started. */
  readonly resume?: string
  readonly home: string
  readonly workspace: string
  readonly ledger: string
  /** Numbers of journal lines. */
  readonly killSelfAfter?: number
  readonly killQemuAfter?: number
}

const order = JSON.parse(process.argv[2] ?? '') as RecoveringOrder

const extensions: RunOptions['extensions'] = {
  hostTools: {
    order_part: {
      description: 'Orders a part.',
      inputSchema: z.strictObject({ id: z.string() }),
      readOnly: false,
      execute: ({ id }: { id: string }) => {
        appendFileSync(order.ledger, `ordered ${id}\n`)
        return `ordered ${id}`
      },
    },
  },
}

const host = new Host()
const onNotes = () => undefined
const run =
  order.resume === undefined
    ? await host.run({
        prompt: 'Order the part and log it',
        workspace: order.workspace,
        approvals: { rules: [{ effect: 'allow', tool: 'order_part' }], interactive: true },
        vm: { memoryBytes: 512 * 1024 ** 2 },
        extensions,
        onNotes,
      })
    : await host.resume(order.resume, { interactive: true, extensions, onNotes })
console.log(run.id)
for await (const item of run.watch()) {
  if (item.source === 'delta') continue
  if (item.seq === order.killSelfAfter) process.kill(process.pid, 'SIGKILL')
  // A resumed run shows the lines from before too.
  if (item.seq === order.killQemuAfter) await killQemu()
  if (item.event.type !== 'approval-request') continue
  const { approvalId } = item.event.request
  if (!run.hasPendingApproval(approvalId)) continue
  appendFileSync(order.ledger, 'asked\n')
  await run.answer(approvalId, { decision: 'allow', scope: 'once', answer: 'blue' })
}
/** A run that is quicker than the one before has ended its VM by then. */
async function killQemu(): Promise<void> {
  const pid = await findQemu(order.home).catch(() => undefined)
  if (pid !== undefined) process.kill(pid, 'SIGKILL')
}

const { outcome, message } = await run.result()
console.log(`${outcome}: ${message}`)
await host.close()
