// A host process for tests of recovery: starts the run of its first argument, or continues it, and ends with it. The
// host tool writes to a ledger that no victim holds. It kills itself when the journal has the line that its second
// argument names.

import { appendFileSync } from 'node:fs'
import * as z from 'zod'
import type { RunOptions } from '../../host.ts'
import { Host } from '../../host.ts'

export interface RecoveringOrder {
  /** Absent: the run is started. */
  readonly resume?: string
  readonly workspace: string
  readonly ledger: string
  /** Number of the journal line after which this process kills itself. */
  readonly killAfter?: number
}

const order = JSON.parse(process.argv[2] ?? '') as RecoveringOrder

const extensions: RunOptions['extensions'] = {
  hostTools: {
    order_part: {
      description: 'Orders a part.',
      inputSchema: z.strictObject({ id: z.string() }),
      readOnly: false,
      execute: ({ id }: { id: string }) => {
        appendFileSync(order.ledger, `${id}\n`)
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
        approvals: { mode: 'ask', rules: [{ effect: 'allow', tool: 'order_part' }], interactive: true },
        vm: { memoryBytes: 512 * 1024 ** 2 },
        limits: { maxParallelSteps: 2 },
        extensions,
        onNotes,
      })
    : await host.resume(order.resume, { interactive: true, extensions, onNotes })
console.log(run.id)
let isQuestioned = false
for await (const item of run.watch()) {
  if (item.source === 'delta') continue
  if (item.seq === order.killAfter) process.kill(process.pid, 'SIGKILL')
  if (item.event.type === 'approval-request' && run.hasPendingApproval(item.event.request.approvalId)) {
    isQuestioned = true
    const answer = { decision: 'allow', scope: 'once', answer: 'blue' } as const
    await run.answer(item.event.request.approvalId, answer)
  }
}
const { outcome, message } = await run.result()
console.log(JSON.stringify({ outcome, message, isQuestioned }))
await host.close()
