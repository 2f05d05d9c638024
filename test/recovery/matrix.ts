/**
 * The positions of a run at which something dies, in an order whose beginning, of any length, is spread over all of them: each
 * position first in one way, then in the next. Days and commits begin elsewhere.
 */
import { cuts } from './journal-cuts.ts'
import { type Kill, type Victim, victims, type Worlds } from './kills.ts'
import { type Breach, judge, openRequests } from './verdict.ts'
import type { Outcome } from './world.ts'

export interface Row {
  readonly kill: Kill
  /** Type of the line. */
  readonly at: string
  readonly outcome: Outcome
  readonly breaches: readonly Breach[]
}

/** Time that a matrix may take, and how many of its worlds it takes at least. */
export interface Budget {
  readonly ms: number
  readonly atLeast: number
}

/** Worlds at once: much of each is waiting. */
const width = 3
const dayMs = 86_400_000

export function today(): number {
  return Math.floor(Date.now() / dayMs)
}

/**
 * All positions in all ways; the first as many as there are positions are each of them once.
 * @param span of lines, by `seq`. Absent: all
 */
export function killsAt(
  undisturbed: Outcome,
  seed: number,
  { from, to }: { readonly from: number; readonly to: number } = { from: 1, to: undisturbed.lines.length },
): Kill[] {
  const count = to - from + 1
  // Coprime to the count, so that each position comes once.
  const stride = [37, 31, 29, 23].find((each) => count % each !== 0) ?? 1
  return victims
    .flatMap((_, pass) =>
      Array.from({ length: count }, (__, index) => {
        const seq = from + ((index * stride + seed) % count)
        const victim = victims[(seq + pass + seed) % victims.length] ?? 'host'
        return { victim, seq, cut: cuts[(seq + pass + seed) % cuts.length] ?? 'before' } as const
      }),
    )
    .filter((kill) => existsAt(kill.victim, kill.seq, undisturbed))
}

/** Agent and VM live from the first session on. */
function existsAt(victim: Victim, seq: number, { events }: Outcome): boolean {
  const first = events.find(({ event }) => event.type === 'session-start')?.seq ?? 1
  return victim === 'host' || victim === 'power' || seq >= first
}

/** @param span of the run, ms since 1970. Absent: nearly all of it */
export function killsAtRandom(
  undisturbed: Outcome,
  seed: number,
  count: number,
  span?: { readonly from: number; readonly to: number },
): Kill[] {
  const first = undisturbed.events[0]?.at ?? 0
  const { from, to } = span ?? {
    from: first,
    to: first + ((undisturbed.events.at(-1)?.at ?? 0) - first) * 0.9,
  }
  let state = seed >>> 0
  const draw = (): number => {
    // A generator of 32 bits (Numerical Recipes), so that a seed says which moments there were.
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return state / 2 ** 32
  }
  return Array.from({ length: count }, () => ({
    victim: victims[Math.floor(draw() * victims.length)] ?? 'host',
    afterMs: from - first + draw() * (to - from),
  }))
}

/** @returns rows of those that were reached within the budget */
export async function runMatrix(
  worlds: Worlds,
  undisturbed: Outcome,
  kills: readonly Kill[],
  { ms, atLeast }: Budget,
): Promise<Row[]> {
  const until = performance.now() + ms
  const rows: Row[] = []
  let next = 0
  const work = async (): Promise<void> => {
    for (;;) {
      const kill = kills[next]
      if (kill === undefined || (next >= atLeast && performance.now() > until)) return
      next += 1
      rows.push(await runOne(worlds, undisturbed, kill))
    }
  }
  await Promise.all(Array.from({ length: width }, work))
  return rows
}

async function runOne(worlds: Worlds, undisturbed: Outcome, kill: Kill): Promise<Row> {
  const outcome = await reached(worlds, kill)
  const at = outcome.killedAfter === undefined ? 'nothing' : lineAt(outcome)
  return { kill, at, outcome, breaches: judge(outcome, undisturbed, kill) }
}

/** A moment behind the end of a quicker run is no kill: an earlier one is taken. */
async function reached(worlds: Worlds, kill: Kill): Promise<Outcome> {
  const outcome = await worlds.run(kill)
  if (outcome.killedAfter !== undefined || !('afterMs' in kill)) return outcome
  return await reached(worlds, { ...kill, afterMs: kill.afterMs / 2 + 100 })
}

/** The last line that the journal had, whole. */
function lineAt({ killedAfter = [], events }: Outcome): string {
  return events[killedAfter.length - 1]?.event.type ?? 'the beginning'
}

/** A row for each type of line, with how often each victim died there and what it cost. */
export function describeRows(rows: readonly Row[], undisturbed: Outcome): string {
  const groups = Map.groupBy(rows, ({ at }) => at)
  const table = [...groups]
    .toSorted(([a], [b]) => a.localeCompare(b))
    .map(([at, group]) => {
      const counts = victims.map((victim) => group.filter(({ kill }) => kill.victim === victim).length)
      const same = group.filter(({ breaches }) => breaches.length === 0).length
      const paid = Math.max(...group.map(({ outcome }) => outcome.paid - undisturbed.paid))
      return [at, ...counts, same, group.length - same, paid, resumeMsOf(group)]
    })
  const head = [
    'killed behind',
    ...victims,
    'same',
    'other',
    'paid again (most)',
    'to the new agent (ms, most)',
  ]
  return [head, ...table].map((row) => row.join('\t')).join('\n')
}

/** From the line that the run continues until its next agent answers. */
function resumeMsOf(rows: readonly Row[]): number {
  const times = rows.flatMap(({ outcome: { events } }) => {
    const from = events.find(({ event }) => event.type === 'run-resume')
    const to = events.find(({ event, seq }) => event.type === 'vm-ready' && seq > (from?.seq ?? Infinity))
    return from === undefined || to === undefined ? [] : [to.at - from.at]
  })
  return Math.max(0, ...times)
}

export function describeBreach({ kill, at, outcome, breaches }: Row): string {
  const where = 'seq' in kill ? `${kill.cut} line ${kill.seq}` : `after ${Math.round(kill.afterMs)} ms`
  const seen = breaches.map(({ property, seen }) => `${property}: ${seen.slice(0, 500)}`).join('; ')
  const events = outcome.events.map(({ event }) => event.type).join(' ')
  return `${kill.victim} killed ${where} (${at}; ${openRequests(outcome)} requests open): ${seen}\n${events}`
}
