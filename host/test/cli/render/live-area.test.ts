// The rows below a run that are drawn again and again: what they say, and that erasing takes all of them away.
import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import type { AgentEvent, Delta, HostDelta, HostEvent } from '#specs/protocol/event.ts'
import { initialRunState, reduceRun } from '#specs/protocol/run-state.ts'
import { colorsFor } from '../../../cli/render/colors.ts'
import { canDraw, LiveArea } from '../../../cli/render/live-area.ts'
import { LiveRows } from '../../../cli/render/live-rows.ts'
import type { FeedItem } from '../../../journal/run-feed.ts'

const plain = colorsFor({})
const itemOf = (delta: Delta | HostDelta, agentPath = 'root'): FeedItem => ({
  source: 'delta',
  runId: 'run-00000000000000000001',
  agentPath,
  delta,
})
const piece = { stepId: 's', turn: 1, offset: 0 }

function drawn(columns: number, rows: readonly string[]): string {
  const out = Object.assign(new PassThrough(), { isTTY: true, columns, rows: 10 })
  new LiveArea(out).draw(rows)
  return String(out.read())
}

describe('the live area', () => {
  it('is drawn only where a cursor can be moved [H.01]', () => {
    expect(canDraw({ isTTY: true }, {})).toBe(true)
    expect(canDraw({ isTTY: true }, { TERM: 'dumb' })).toBe(false)
    expect(canDraw({}, {})).toBe(false)
  })

  it('cuts each row at the width, keeps the last rows, and leaves the cursor at the first [H.01]', () => {
    const text = drawn(20, ['x'.repeat(50), 'status'])
    expect(text).toContain(`${'x'.repeat(19)}`)
    expect(text).not.toContain('x'.repeat(20))
    expect(text.endsWith('\u001b[J\u001b[1A\r')).toBe(true)
    const many = drawn(
      80,
      Array.from({ length: 30 }, (_, index) => `row ${index}`),
    )
    expect(many).toContain('row 29')
    expect(many).not.toContain('row 0')
  })

  it('shows the end of what the model writes, made harmless, until its stream is void [S1.10 H.01]', () => {
    const rows = new LiveRows()
    rows.take(itemOf({ type: 'text-delta', ...piece, text: 'one\ntwo\n\u001b[2Jthree' }))
    const shown = rows.above(initialRunState, plain).join('\n')
    expect(shown).toContain('│ two')
    expect(shown).not.toContain('\u001b[2J')
    rows.take(itemOf({ type: 'turn-reset', stepId: 's', turn: 1 }))
    expect(rows.above(initialRunState, plain)).toEqual([])
  })

  it('has a row for each sub-agent with what it does [H.01]', () => {
    const event: AgentEvent = { type: 'agent-start', stepId: 's', brief: 'b', tools: [], limits: {} }
    const state = reduceRun(initialRunState, { event, agentPath: 'root/check' })
    const rows = new LiveRows()
    rows.take(itemOf({ type: 'reasoning-delta', ...piece, text: 'hm' }, 'root/check'))
    expect(rows.above(state, plain).join('\n')).toMatch(/check.*thinking/)
  })

  it('says what is waited for, the time that is left and what the VM uses [S1.10 H.01]', () => {
    const rows = new LiveRows()
    rows.take(itemOf({ type: 'prepare', what: 'vm', text: 'starting a VM' }))
    expect(rows.hint()).toBe('starting a VM')
    rows.take(itemOf({ type: 'time-left', remainingMs: 90_000, at: 1_000, stoppedBy: 'approval' }))
    expect(rows.figures(initialRunState, false, 61_000)).toEqual(['1 min 30 s left, clock stopped'])
    rows.take(itemOf({ type: 'time-left', remainingMs: 90_000, at: 1_000 }))
    rows.take(
      itemOf({ type: 'vm-use', memoryBytes: 1024, memoryMaxBytes: 2048, cpuPercent: 50.4, diskBytes: 4096 }),
    )
    const figures = rows.figures(initialRunState, true, 61_000)
    expect(figures).toEqual(['30 s left', 'VM 50 % CPU, 1.0 kB of 2.0 kB, 4.1 kB on disk'])
    expect(rows.figures(initialRunState, false, 61_000)).toEqual(['30 s left'])
  })

  it('says that the VM is being saved although its session has ended [S1.10 H.01]', () => {
    const rows = new LiveRows()
    const take = (event: HostEvent) => rows.take({ source: 'host', event } as FeedItem)
    rows.take(itemOf({ type: 'prepare', what: 'vm', text: 'saving the VM' }))
    take({ type: 'session-end', session: 1, reason: 'parked', message: 'the VM is being saved' })
    expect(rows.hint()).toBe('saving the VM')
    take({ type: 'vm-kept' })
    expect(rows.hint()).toBe('')
  })
})
