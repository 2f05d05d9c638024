/** Lines about the agents of a run and what people say to them; the path of a sub-agent before each line of its own. */
import type { AgentEvent, HostEvent } from '#specs/protocol/event.ts'
import { formatCount } from '../../files/format.ts'
import type { Colors } from './colors.ts'
import { sanitizeBlock, sanitizeLine } from './sanitize.ts'

type Of<T extends string> = Extract<AgentEvent | HostEvent, { type: T }>

/** Lines of a sub-agent's answer that are shown when it ends. */
const answerMaxLines = 10
const conflictsMax = 10

/**
 * The lines of an agent behind its name, so that who speaks is seen in each, indented by its depth; those of the root
 * agent as they are.
 */
export function underPath(agentPath: string, lines: readonly string[], colors: Colors): string[] {
  if (agentPath === 'root') return [...lines]
  const name = colors.cyan(`[${nameOf(agentPath)}]`)
  const indent = '  '.repeat(agentPath.split('/').length - 1)
  return lines.flatMap((line) => line.split('\n')).map((line) => `${indent}${name} ${line.trimStart()}`)
}

/** How a sub-agent is called among the agents of its run. */
export function nameOf(agentPath: string): string {
  return sanitizeLine(agentPath.replace(/^root\//, ''), 300)
}

export function agentStartLines(
  { brief, model, isolation, hosts, approvals }: Of<'agent-start'>,
  colors: Colors,
): string[] {
  const [first = '', ...more] = brief.trim().split('\n')
  const rest = more.length === 0 ? '' : colors.dim(` … (${formatCount(more.length, 'more line')})`)
  const bounds = [
    hosts === undefined
      ? ''
      : hosts.length === 0
        ? ', no network'
        : `, only ${formatCount(hosts.length, 'host')}`,
    approvals === 'deny' ? ', asks nobody' : '',
  ]
  const where = isolation === 'vm' ? colors.dim(` (VM of its own${bounds.join('')})`) : ''
  const by = model === undefined ? '' : colors.dim(` (model ${sanitizeLine(model, 200)})`)
  return [`▸ started: ${sanitizeLine(first, 200)}${rest}${by}${where}`]
}

export function agentEndLines(event: Of<'agent-end'>, colors: Colors): string[] {
  const { state, reason, text, merged, conflicts } = event
  const mark = { completed: colors.green('✔'), failed: colors.red('✘'), cancelled: '–' }[state]
  const why = reason === state ? '' : ` (${reason})`
  const facts = [
    merged === 0 ? '' : `${formatCount(merged, 'path')} merged`,
    conflicts.length === 0 ? '' : colors.yellow(formatCount(conflicts.length, 'conflict')),
  ].filter((fact) => fact !== '')
  const shown = conflicts
    .slice(0, conflictsMax)
    .map((path) =>
      colors.yellow(
        `conflict: ${sanitizeLine(path)} also changed in the workspace; that version is kept, this one is not`,
      ),
    )
  const rest = conflicts.length - shown.length
  return [
    `${mark} ${[`${state}${why}`, ...facts].join(' · ')}`,
    ...(text === '' ? [] : [sanitizeBlock(text, '│ ', answerMaxLines)]),
    ...shown,
    ...(rest > 0 ? [colors.yellow(`… ${rest} more`)] : []),
  ]
}

/** What people said to the agent, as the host knows it, and what the agent says it heard. */
export function steeringLines(
  event: Of<
    | 'steer-request'
    | 'agent-cancel-request'
    | 'steer-seen'
    | 'pause-request'
    | 'resume-request'
    | 'pause-start'
    | 'pause-end'
  >,
  colors: Colors,
): string[] {
  switch (event.type) {
    case 'steer-request':
      return [
        colors.cyan(`› Message by ${sanitizeLine(event.by, 60)}${toWhom(event.agentPath)}:`),
        sanitizeBlock(event.text, '  › ', 20),
      ]
    case 'agent-cancel-request': {
      const why = event.reason === '' ? '' : `: ${sanitizeLine(event.reason, 200)}`
      return [
        colors.yellow(
          `Cancel of ${nameOf(event.agentPath)} requested by ${sanitizeLine(event.by, 60)}${why}`,
        ),
      ]
    }
    case 'steer-seen':
      return [colors.dim(`    the agent reads ${formatCount(event.messageIds.length, 'message')}`)]
    case 'pause-request':
      return [colors.yellow(`Pause requested by ${sanitizeLine(event.by)}`)]
    case 'resume-request':
      return [colors.yellow(`Resume requested by ${sanitizeLine(event.by)}`)]
    case 'pause-start':
      return [colors.yellow('The agent is paused')]
    case 'pause-end':
      return [colors.dim('The agent continues')]
  }
}

function toWhom(agentPath: string | undefined): string {
  return agentPath === undefined ? '' : ` to ${nameOf(agentPath)}`
}

export function compactLine({ beforeTokens, afterTokens }: Of<'context-compact'>, colors: Colors): string {
  return colors.dim(`    conversation compacted from ${beforeTokens} to ${afterTokens} tokens`)
}

/** Whose section the agent has in its context, and how much of it. */
export function sectionLine(
  { name, from, chars, shownChars }: Of<'context-shown'>['sections'][number],
  colors: Colors,
): string {
  const size = shownChars < chars ? `${shownChars} of ${chars} characters` : `${chars} characters`
  return colors.dim(`    context ${sanitizeLine(name, 60)} of ${sanitizeLine(from, 60)}: ${size}`)
}
