import { describe, expect, it } from 'vitest'
import { type RecoveredRun, recoverRun } from '../support/recovered-run.ts'

/**
 * Each day another third of the positions, in another order, as many of them as fit; a comma-separated list in the
 * environment replaces them.
 */
const chosen = process.env.CAISSON_TEST_POSITIONS?.split(',').map(Number)
const today = Math.floor(Date.now() / 86_400_000)
const budget = chosen === undefined ? { ms: 45_000, atLeast: 4 } : { ms: Infinity, atLeast: Infinity }

function chosenOf(possible: readonly number[]): readonly number[] {
  if (chosen !== undefined) return possible.filter((seq) => chosen.includes(seq))
  const third = possible.filter((seq) => seq % 3 === today % 3)
  const first = today % third.length
  // Every second one, then the others: few of them still lie in the whole run.
  const turned = [...third.slice(first), ...third.slice(0, first)]
  return [0, 1].flatMap((odd) => turned.filter((_, at) => at % 2 === odd))
}

function outcomeOf({ files, orders, ends, leftVms }: RecoveredRun) {
  return { files, orders, ends, leftVms }
}

/**
 * An order whose result is not known is not made again: the model learns that. The kill may come some lines later than
 * its position, so the journal says whether the order was under way.
 */
function isUnknown({ events, orders }: RecoveredRun): boolean {
  const lost = events.findIndex(({ event }) => event.type === 'run-resume')
  const count = (type: string) => events.slice(0, lost).filter(({ event }) => event.type === type).length
  if (lost < 0 || count('host-tool-start') <= count('host-tool-end')) return false
  const hasLearned = events.some(
    ({ event }) => event.type === 'tool-end' && event.error?.message.includes('result is not known') === true,
  )
  return hasLearned && orders.length <= 1
}

/** Of the journal's lines before the run's end; for QEMU those while it runs. */
function positionsOf({ events }: RecoveredRun, victim: 'host process' | 'QEMU'): number[] {
  const types = events.map(({ event }) => event.type)
  const from = victim === 'QEMU' ? types.indexOf('vm-ready') : 0
  const end = victim === 'QEMU' ? types.indexOf('step-end') : types.indexOf('run-end')
  return events.slice(from, end).map(({ seq }) => seq)
}

describe.each(['host process', 'QEMU'] as const)('a run whose %s is killed', (victim) => {
  it('has the same files, effects and end as one that nobody disturbed, at each position [R.01]', async () => {
    const undisturbed = await recoverRun()
    const rows: string[] = []
    const others: string[] = []
    let kills = 0
    const positions = chosenOf(positionsOf(undisturbed, victim))
    const startedAt = performance.now()
    for (const at of positions) {
      if (kills >= budget.atLeast && performance.now() - startedAt > budget.ms) break
      const killed = await recoverRun(
        victim === 'QEMU' ? { killQemuAfter: at } : { killSelfAfter: at },
      ).catch((error: unknown) => {
        throw new Error(`at line ${at}`, { cause: error })
      })
      if (!killed.isKilled) {
        rows.push(`${at}: the run had ended`)
        continue
      }
      kills += 1
      const what = undisturbed.events[at - 1]?.event.type
      const expected = outcomeOf(isUnknown(killed) ? { ...undisturbed, orders: killed.orders } : undisturbed)
      const isSame = JSON.stringify(outcomeOf(killed)) === JSON.stringify(expected)
      const counts = `requests ${killed.paid} of ${undisturbed.paid}, questions ${killed.asked}`
      const row = `${at} ${what}: ${isSame ? 'the same' : 'OTHER'}, ${counts}`
      rows.push(row)
      if (isSame) continue
      const last = killed.events.map(({ event }) => (event.type === 'run-end' ? event.message : event.type))
      others.push(`${row}\n${JSON.stringify(outcomeOf(killed))}\n${last.join(' ')}`)
    }
    console.log(`${rows.length} of ${positions.length} positions\n${rows.join('\n')}`)
    expect(others).toEqual([])
    expect(kills).toBeGreaterThan(rows.length / 2)
  }, 1_200_000)
})
