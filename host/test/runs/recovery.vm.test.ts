import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import { reply } from '#specs/testing/model-replies.ts'
import { type ModelServer, startModelServer } from '#specs/testing/model-server.ts'
import { findQemu } from '../support/vm-processes.ts'
import { type FinishedRun, finish, testBench } from '../support/runs.ts'

/** The calls of the task, one in each turn of the model; then it answers. */
const calls = [
  ['run_bash', { command: 'echo one >> log.txt' }],
  ['order_part', { id: 'a7' }],
  ['run_bash', { command: 'echo two >> log.txt; sleep 1.2' }],
  ['write_file', { path: 'new.txt', content: 'new\n' }],
  ['run_bash', { command: 'cat log.txt; sleep 1.2; echo three >> log.txt' }],
] as const

async function startModel(): Promise<ModelServer> {
  return await startModelServer(({ messages }) => {
    const done = messages.filter(({ role }) => role === 'tool').length
    const next = calls[done]
    if (next === undefined) return reply({ text: 'All is done.' })
    const [name, args] = next
    return reply({ calls: [{ id: `call-${done}`, name, arguments: JSON.stringify(args) }] })
  })
}

interface Outcome {
  readonly finished: FinishedRun
  readonly orders: readonly string[]
  readonly paid: number
  readonly log: string
}

/** @param killAfter number of lines of the journal after which QEMU is killed; absent: never */
async function carryOut(killAfter: readonly number[]): Promise<Outcome> {
  await using model = await startModel()
  const bench = await testBench(
    { 'log.txt': '' },
    { CAISSON_LLM_URL: model.baseUrl, CAISSON_LLM_KEY: 'sk-none', CAISSON_MODEL: 'scripted' },
  )
  const orders: string[] = []
  const run = await bench.start('Order the part and log it', {
    extensions: {
      hostTools: {
        order_part: {
          description: 'Orders a part.',
          inputSchema: z.strictObject({ id: z.string() }),
          readOnly: false,
          requiresApproval: false,
          execute: ({ id }: { id: string }) => {
            orders.push(id)
            return `ordered ${id}`
          },
        },
      },
    },
  })
  const killed = new Set(killAfter)
  const killing = (async () => {
    for await (const item of run.watch())
      if (item.source !== 'delta' && killed.delete(item.seq))
        process.kill(await findQemu(bench.home), 'SIGKILL')
  })()
  const finished = await finish(run)
  await killing
  if (finished.state.changes === null) return { finished, orders, paid: model.asked.length, log: '' }
  const changes = await bench.host.changes(run.id)
  await changes.apply('all')
  const { readFile } = await import('node:fs/promises')
  const log = await readFile(`${bench.workspace}/log.txt`, 'utf8')
  return { finished, orders, paid: model.asked.length, log }
}

describe('a run whose VM is lost', () => {
  it('continues from its last checkpoint [R.01]', async () => {
    const undisturbed = await carryOut([])
    console.log(JSON.stringify(undisturbed.finished.events.map((e) => e.type === 'checkpoint' ? e : e.type)))
    console.log(undisturbed.orders, undisturbed.paid, JSON.stringify(undisturbed.log), undisturbed.finished.state.end)
    const lines = undisturbed.finished.items.flatMap((i) => i.source === 'delta' ? [] : [[i.seq, i.event.type]])
    const at = Number(process.env.KILL_AT ?? 30)
    const killed = await carryOut([at])
    console.log(lines.map(String).join(' '))
    console.log(JSON.stringify(killed.finished.items.flatMap((i) => i.source === 'delta' ? [] : [`${i.seq} ${i.event.type} ${i.event.type === 'run-resume' ? i.event.checkpointId : ''}`])))
    console.log(killed.orders, killed.paid, JSON.stringify(killed.log), killed.finished.state.end)
    expect(killed.log).toBe(undisturbed.log)
  }, 300_000)
})
