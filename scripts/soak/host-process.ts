// A host process of the soak: carries out one run after another, continues runs of killed processes, and says how much
// memory and how many descriptors it has. Its tool writes to a ledger that no victim holds.
import { appendFileSync, readdirSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { getHeapSpaceStatistics } from 'node:v8'
import { z } from 'zod'
import { Host, type RunOptions } from '../../host/host.ts'
import { keepLeftMoments } from '../../host/journal/kept-moments.ts'
import type { Run } from '../../host/runs/run.ts'
import { errorMessage } from '../../specs/errors.ts'
import { prepareCuts } from './link-cuts.ts'
import type { SoakTask } from './tasks.ts'

export interface Order {
  readonly does: 'run' | 'resume' | 'cut' | 'measure' | 'end'
  readonly workspace: string
  readonly ledger: string
  readonly task?: SoakTask
  readonly runId?: string
  /** Milliseconds before each question is answered; null: never. */
  readonly answerAfterMs?: number | null
  /** Milliseconds after which a waiting VM is saved; absent: it is not. */
  readonly hibernateAfterMs?: number
  /** Milliseconds after which a waiting run sleeps; absent: it does not. */
  readonly sleepAfterMs?: number
  /** Whether VMs are booted. Absent: they are copies of a template. */
  readonly boots?: boolean
  /** Until the link is cut. */
  readonly bytes?: number
}

export type Report =
  | { readonly says: 'started'; readonly runId: string }
  | { readonly says: 'event'; readonly type: string }
  | { readonly says: 'ended'; readonly end: string }
  | {
      readonly says: 'measured'
      readonly heapBytes: number
      readonly rssBytes: number
      readonly descriptors: number
    }

const cutLink = prepareCuts()
const host = new Host()
/** To nobody, once the soak has ended. */
const say = (report: Report): void => {
  if (process.connected) process.send?.(report)
}

// The soak was killed: nobody would end the run.
process.on('disconnect', () => process.exit(1))
process.on('message', (order: Order) => {
  carryOut(order).catch((error: unknown) => say({ says: 'ended', end: `thrown: ${errorMessage(error)}` }))
})

async function carryOut(order: Order): Promise<void> {
  if (order.does === 'measure') return await measure()
  if (order.does === 'cut') return cutLink(order.bytes ?? 0)
  if (order.does === 'end') {
    await host.close()
    process.exit(0)
  }
  const ended = order.does === 'resume' ? await takeEnded(order.runId ?? '') : undefined
  if (ended !== undefined) return say({ says: 'ended', end: ended })
  const extensions = extensionsOf(order)
  const onNotes = (): void => undefined
  const run =
    order.does === 'resume'
      ? await host.resume(order.runId ?? '', { interactive: true, extensions, onNotes })
      : await host.run({
          prompt: order.task?.plan.goal ?? '',
          workspace: order.workspace,
          plan: { from: order.task?.plan as never },
          approvals: { rules: [{ effect: 'allow', tool: 'order_part' }], interactive: true },
          vm: {
            memoryBytes: 512 * 1024 ** 2,
            diskBytes: 256 * 1024 ** 2,
            hibernateAfterMs: order.hibernateAfterMs ?? 0,
            sleepAfterMs: order.sleepAfterMs ?? 0,
            ...(order.boots === true ? { start: 'cold' as const } : {}),
          },
          extensions,
          onNotes,
        })
  say({ says: 'started', runId: run.id })
  await accompany(run, order)
  const { outcome, message } = await run.result()
  await applyChanges(run.id)
  say({ says: 'ended', end: outcome === 'completed' ? outcome : `${outcome}: ${message}` })
}

async function applyChanges(runId: string): Promise<void> {
  const changes = await host.changes(runId).catch(() => undefined)
  await changes?.apply('all')
}

/** The end of a run whose process was killed behind the run's last line; undefined: it has none. */
async function takeEnded(runId: string): Promise<string | undefined> {
  const { state } = await host.runs.summary(runId)
  if (state.phase !== 'ended') return undefined
  // As the start of the next run does.
  await host.runs.clearScratch()
  await keepLeftMoments(host.runs)
  await applyChanges(runId)
  return state.end?.outcome ?? 'completed'
}

async function accompany(run: Run, { answerAfterMs = 0 }: Order): Promise<void> {
  for await (const item of run.watch()) {
    if (item.source === 'delta') continue
    say({ says: 'event', type: item.event.type })
    if (item.event.type !== 'approval-request' || answerAfterMs === null) continue
    const { approvalId } = item.event.request
    if (run.hasPendingApproval(approvalId)) void answerLater(run, approvalId, answerAfterMs)
  }
}

async function answerLater(run: Run, approvalId: string, afterMs: number): Promise<void> {
  await sleep(afterMs)
  await run.answer(approvalId, { decision: 'allow', scope: 'once', answer: 'yes' }).catch(() => undefined)
}

function extensionsOf({ ledger }: Order): NonNullable<RunOptions['extensions']> {
  return {
    hostTools: {
      order_part: {
        description: 'Orders a part.',
        inputSchema: z.strictObject({ id: z.string() }),
        readOnly: false,
        execute: ({ id }: { id: string }) => {
          appendFileSync(ledger, `${id}\n`)
          return `ordered ${id}`
        },
      },
    },
  }
}

async function measure(): Promise<void> {
  // Twice: what the first collection frees may hold more.
  for (let round = 0; round < 2; round += 1) {
    await sleep(50)
    globalThis.gc?.()
  }
  // What V8 compiles as functions become hot is no data of a run.
  const heapBytes = getHeapSpaceStatistics()
    .filter(
      ({ space_name: name }) =>
        name.startsWith('new_') || name.startsWith('old_') || name.startsWith('large_'),
    )
    .reduce((sum, space) => sum + space.space_used_size, 0)
  const { rss } = process.memoryUsage()
  const descriptors = readdirSync('/proc/self/fd').length
  say({ says: 'measured', heapBytes, rssBytes: rss, descriptors })
}
