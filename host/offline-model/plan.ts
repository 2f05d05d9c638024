/** The offline planner: turns intents into a plan, whose instructions the offline step agent parses back exactly. */
import type { Plan } from '#specs/protocol/plan.ts'
import {
  describeIntent,
  pathsRead,
  pathsWritten,
  readIntent,
  type UserIntent,
  wordIntent,
} from './intents.ts'
import { understandTask } from './understand.ts'

type PlanStep = Plan['steps'][number]

/** Most orders of one task; a plan has a bound, and an analysis takes two steps. */
const intentsMax = 20
/** Longest goal and title, in characters: both are one line on a screen. */
const goalMaxChars = 120
const titleMaxChars = 100

/**
 * @param workspace the listing that came with the planning request
 * @param agentsMax sub-agents that the plan may need; the first steps get them
 */
export function planTask(
  task: string,
  workspace: readonly string[],
  agentsMax = Number.POSITIVE_INFINITY,
): Plan {
  const read = understandTask(task, workspace)
  const tooMany = read.ok && read.intents.length > intentsMax
  const reason = tooMany ? `more than ${intentsMax} orders at once` : read.ok ? '' : read.reason
  if (reason !== '' || !read.ok)
    return {
      goal: 'Say what was not understood, and what is here',
      steps: toSteps([{ kind: 'look', reason }], []),
    }
  const orders = read.intents.map((intent, place) => ({
    intents: expand(intent),
    byAgent: read.byAgents?.has(place) ?? false,
  }))
  const wanted = orders.flatMap(({ intents, byAgent }) => intents.map(() => byAgent))
  let left = agentsMax
  const byAgents = wanted.map((isWanted) => isWanted && left-- > 0)
  const intents = orders.flatMap((order) => order.intents)
  return { goal: oneLine(task, goalMaxChars), steps: toSteps(intents, byAgents) }
}

/** The intent of a sub-agent's brief that such a plan made; null for any other brief. */
export function readBrief(brief: string): UserIntent | null {
  const [said, instructions = ''] = brief.split('\n\n')
  const intent = readIntent(instructions)
  return intent !== null && titleOf(intent) === said ? intent : null
}

/** An analysis is two steps, so that the profile is visible before the report is written. */
function expand(intent: UserIntent): UserIntent[] {
  return intent.kind === 'analyze-csv' ? [{ kind: 'inspect-csv', path: intent.path }, intent] : [intent]
}

/** @param byAgents which of them are for sub-agents */
function toSteps(intents: readonly UserIntent[], byAgents: readonly boolean[]): PlanStep[] {
  return intents.map((intent, index) => ({
    id: stepId(intent, index),
    ...(byAgents[index] === true ? { kind: 'agent' as const } : {}),
    title: titleOf(intent),
    instructions: wordIntent(intent),
    needs: intents
      .slice(0, index)
      .flatMap((earlier, place) => (mustFollow(earlier, intent) ? [stepId(earlier, place)] : []))
      .slice(-32),
    writes: [...pathsWritten(intent)],
    onFailure: 'abort',
  }))
}

/** Orders that share a path, and those after a question, run in sequence; others may run in parallel. */
function mustFollow(earlier: UserIntent, later: UserIntent): boolean {
  const inspected =
    earlier.kind === 'inspect-csv' && later.kind === 'analyze-csv' && earlier.path === later.path
  // The answer may matter to every later order.
  if (earlier.kind === 'ask') return true
  const [wroteBefore, readBefore] = [pathsWritten(earlier), pathsRead(earlier)]
  const [writes, reads] = [pathsWritten(later), pathsRead(later)]
  return inspected || meet(wroteBefore, writes) || meet(wroteBefore, reads) || meet(readBefore, writes)
}

function meet(a: readonly string[], b: readonly string[]): boolean {
  const below = (x: string, y: string): boolean => x === '*' || x === y || y.startsWith(`${x}/`)
  return a.some((x) => b.some((y) => below(x, y) || below(y, x)))
}

function stepId(intent: UserIntent, index: number): string {
  return `${intent.kind === 'chore' ? intent.chore : intent.kind}-${index + 1}`
}

/** The title of the step for the intent: one line. */
export function titleOf(intent: UserIntent): string {
  return oneLine(describeIntent(intent), titleMaxChars)
}

function oneLine(text: string, maxChars: number): string {
  const line = text.replaceAll(/\s+/g, ' ').trim()
  return line.length <= maxChars ? line : `${line.slice(0, maxChars - 1).toWellFormed()}…`
}
