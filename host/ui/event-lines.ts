/** The lines that one event of a run becomes, in a terminal as in a log. Pure; all foreign text goes through foreign.ts. */
import type { AgentEvent, HostEvent } from '#specs/protocol/event.ts'
import type { Plan } from '#specs/protocol/plan.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import type { Colours } from './colours.ts'
import { foreignBlock, foreignLine } from './foreign.ts'
import { formatBytes, formatCount, formatDuration } from './format.ts'

/** @param state the state after the event */
export function linesOf(event: AgentEvent | HostEvent, state: RunState, colours: Colours): string[] {
  switch (event.type) {
    case 'run-start':
      return [
        `Run in ${foreignLine(event.directory)} · model ${foreignLine(event.model)} (${foreignLine(event.provider)})`,
      ]
    case 'workspace-ready':
      return workspaceLines(event, colours)
    case 'vm-ready':
      return [
        `VM ready in ${formatDuration(Object.values(event.phasesMs).reduce((sum, ms) => sum + ms, 0))} · ${event.accelerator} · ${event.confinement}`,
      ]
    case 'vm-end':
      return event.expected ? [] : [colours.red(`The VM ended: ${foreignLine(event.message, 2_000)}`)]
    case 'session-start':
      return event.session === 1
        ? []
        : [colours.yellow(`Session ${event.session} with the agent${event.resumed ? ', resumed' : ''}`)]
    case 'session-end':
      return event.reason === 'closed' ? [] : [colours.yellow(`Session ended: ${foreignLine(event.message)}`)]
    case 'plan-update':
      return planLines(event.plan, event.revision, event.reason, colours)
    case 'step-start':
      return [`${colours.cyan('▸')} ${stepTitle(state, event.stepId)}`]
    case 'step-end':
      return stepEndLines(event, state, colours)
    case 'tool-start':
      return [colours.dim(`    ${foreignLine(event.tool, 60)} ${foreignLine(event.arguments, 160)}`)]
    case 'tool-end':
      return event.error === undefined
        ? []
        : [
            colours.yellow(
              `    ${foreignLine(event.tool, 60)}: ${event.error.code}: ${foreignLine(event.error.message, 300)}`,
            ),
          ]
    case 'approval-decision':
      return [approvalLine(event, colours)]
    case 'egress-denied':
      return [colours.yellow(`Refused: ${foreignLine(event.target)}: ${foreignLine(event.reason)}`)]
    case 'note':
      return [
        colours[event.level === 'warn' ? 'yellow' : 'dim'](`    the agent says: ${foreignLine(event.text)}`),
      ]
    case 'model-end':
      return event.error === undefined
        ? []
        : [colours.yellow(`    model: ${event.status}: ${foreignLine(event.error)}`)]
    case 'cancel-request':
      return [colours.yellow('Cancelling …')]
    case 'run-end':
      return runEndLines(event, state, colours)
    default:
      return []
  }
}

type Of<T extends string> = Extract<AgentEvent | HostEvent, { type: T }>

function workspaceLines(event: Of<'workspace-ready'>, colours: Colours): string[] {
  const lines = [`Workspace: ${formatCount(event.files, 'file')}, ${formatBytes(event.bytes)}`]
  const told = event.examples.filter(({ reason }) => reason !== 'ignored')
  for (const { path, reason } of told.slice(0, 5)) {
    lines.push(colours.yellow(`  left out: ${foreignLine(path)} (${reason.replaceAll('_', ' ')})`))
  }
  const rest = event.leftOut - Math.min(told.length, 5)
  if (rest > 0) lines.push(colours.dim(`  left out: ${rest} more (ignored files among them)`))
  return lines
}

function planLines(plan: Plan, revision: number, reason: string | undefined, colours: Colours): string[] {
  const head = `${revision === 1 ? 'Plan' : `Plan, revision ${revision}`}: ${foreignLine(plan.goal)}`
  const why = reason === undefined ? [] : [`  because ${foreignLine(reason)}`]
  const steps = plan.steps.map(({ id, title, needs }, index) => {
    const after =
      needs.length === 0
        ? ''
        : colours.dim(` (after ${needs.map((need) => foreignLine(need, 40)).join(', ')})`)
    return `  ${index + 1}. ${foreignLine(title)} ${colours.dim(foreignLine(id, 40))}${after}`
  })
  return [colours.bold(head), ...why, ...steps]
}

function stepTitle(state: RunState, stepId: string): string {
  const index = state.plan?.steps.findIndex(({ id }) => id === stepId) ?? -1
  const title = state.plan?.steps[index]?.title ?? stepId
  return index < 0 ? foreignLine(title) : `${index + 1}/${state.plan?.steps.length} ${foreignLine(title)}`
}

function stepEndLines(event: Of<'step-end'>, state: RunState, colours: Colours): string[] {
  const mark = { completed: colours.green('✔'), failed: colours.red('✘'), skipped: '–', cancelled: '–' }[
    event.state
  ]
  const word = event.state === 'completed' ? '' : ` ${event.state}`
  const head = `${mark} ${stepTitle(state, event.stepId)}${word}`
  return event.text === '' ? [head] : [head, foreignBlock(event.text, '    │ ', 12)]
}

function approvalLine(event: Of<'approval-decision'>, colours: Colours): string {
  const by = event.rule === undefined ? `by ${event.by}` : `by ${event.by}: ${foreignLine(event.rule)}`
  const hint = event.hint === undefined ? '' : ` · ${foreignLine(event.hint)}`
  const word = event.decision === 'allow' ? colours.green('Allowed') : colours.red('Denied')
  return `${word} (${by}${event.scope === 'run' ? ', for this run' : ''})${hint}`
}

function runEndLines(event: Of<'run-end'>, state: RunState, colours: Colours): string[] {
  const colour = { completed: colours.green, failed: colours.red, cancelled: colours.yellow }[event.outcome]
  const tokens = event.usage.inputTokens + event.usage.outputTokens
  const facts = [
    formatDuration(event.durationMs),
    formatCount(state.toolCalls, 'tool call'),
    `${tokens} tokens`,
  ]
  const lines = event.summary === '' ? [] : ['', foreignBlock(event.summary), '']
  lines.push(`${colour(`Run ${event.outcome}`)} · ${facts.join(' · ')}`)
  if (event.outcome !== 'completed') lines.push(foreignBlock(`${event.reason}: ${event.message}`))
  return lines
}
