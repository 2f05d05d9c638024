/** Prompt text describing the plan to be replaced. Untrusted text is in blocks that it cannot leave. */
import { block } from '../text/prompt-block.ts'
import { truncateMiddle } from '../text/truncate.ts'
import type { Replanning } from './parse-plan.ts'

/** Maximum characters of one step's answer. */
const resultMaxChars = 4_000

/** Sections appended to those of a planning request. */
export function describeFormer({ plan, states, why }: Replanning): string {
  const begun = plan.steps.filter(({ id }) => Object.hasOwn(states, id) && states[id]?.state !== 'pending')
  const lines = plan.steps.map(
    ({ id }) => `${id}: ${Object.hasOwn(states, id) ? states[id]?.state : 'pending'}`,
  )
  const results = begun
    .filter(({ id }) => states[id]?.state !== 'running' && states[id]?.text !== '')
    .map(({ id }) => block('result', truncateMiddle(states[id]?.text ?? '', resultMaxChars), ` step="${id}"`))
  return [
    `# Plan in force\n${block('plan', JSON.stringify(plan))}`,
    `# State of the plan\n${lines.join('\n')}`,
    ...(results.length > 0 ? [`# Results of its steps\n${results.join('\n')}`] : []),
    'hint' in why
      ? `# What the user says of it\n${block('message', why.hint)}`
      : `# Why it is planned anew\nStep "${why.failedStep}" failed; its result says why.`,
    `# What is asked\n${describeOrder(
      begun.map(({ id }) => id),
      why,
    )}`,
  ].join('\n\n')
}

function describeOrder(begun: readonly string[], why: Replanning['why']): string {
  const order =
    'hint' in why
      ? 'The user did not allow this plan. Hand in a whole new one that does what they say.'
      : 'Hand in the whole plan again, so that its goal is reached in another way. No step may need one that failed.'
  if (begun.length === 0) return order
  return `${order} Steps that have begun (${begun.join(', ')}) stay exactly as they are; change, add and leave out others.`
}
