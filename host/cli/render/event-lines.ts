/** The lines that one event of a run becomes, in a terminal as in a log. Pure; all untrusted text goes through sanitize.ts. */

import type { AgentEvent, HostEvent } from '#specs/protocol/event.ts'
import { describeImage } from '#specs/protocol/image.ts'
import type { Plan } from '#specs/protocol/plan.ts'
import { askTool } from '#specs/protocol/question.ts'
import type { RunLine, RunState } from '#specs/protocol/run-state.ts'
import { planTool } from '../../approvals/plan-question.ts'
import { formatBytes, formatCost, formatCount, formatDuration } from '../../files/format.ts'
import { withFlags } from '../options.ts'
import {
  agentEndLines,
  agentStartLines,
  compactLine,
  sectionLine,
  steeringLines,
  underPath,
} from './agent-lines.ts'
import { decisionLine, describeArguments, describeQuestion, offerLines } from './call-lines.ts'
import type { Colors } from './colors.ts'
import { hookLines, hostToolLine } from './hook-lines.ts'
import { noteEventLines } from './note-lines.ts'
import { planChanges, planLines } from './plan-lines.ts'
import { describeParts } from './review-lines.ts'
import { sanitizeBlock, sanitizeLine } from './sanitize.ts'
import { argumentLines, type Detail, modelEndLines, toolEndLines, turnEndLines } from './turn-lines.ts'

/** Lines of a step's answer that are shown when it ends. */
const answerMaxLines = 20
/** Lines that are shown of a longer one: if it is the run's answer, all of it follows. */
const longAnswerLines = 6

/**
 * @param state the state after the line
 * @param before the state before it: of a revision only what it changes is shown then
 */
export function eventLines(
  line: RunLine & { readonly runId?: string },
  state: RunState,
  colors: Colors,
  before?: RunState,
  detail: Detail = {},
): string[] {
  const { event, agentPath = 'root', runId } = line
  if (event.type === 'vm-kept') return detail.inConversation === true ? [] : [keptLine(runId, colors)]
  return underPath(agentPath, linesOfEvent(event, state, colors, before, detail), colors)
}

function linesOfEvent(
  event: AgentEvent | HostEvent,
  state: RunState,
  colors: Colors,
  before: RunState | undefined,
  detail: Detail,
): string[] {
  switch (event.type) {
    case 'run-start':
      return runStartLines(event, colors)
    case 'queue-start':
      return [
        colors.dim(`Waits for its turn${event.priority === 'normal' ? '' : ` (priority ${event.priority})`}`),
      ]
    case 'queue-end':
      return [colors.dim(`Waited ${formatDuration(event.waitedMs)} for its turn`)]
    case 'workspace-ready':
      return workspaceLines(event, colors)
    case 'vm-ready':
      return [vmLine(event, colors), ...unsafeLines(event, colors), ...coldLines(event, colors)]
    case 'vm-sleep':
      return [
        colors.dim(`The VM hibernated in ${formatDuration(event.durationMs)}; it wakes when you answer`),
      ]
    case 'vm-wake':
      return [colors.dim(`The VM woke in ${formatDuration(event.durationMs)}`)]
    case 'run-sleep':
      return [
        colors.dim(
          `The run sleeps without a VM; it continues when you ${event.paused === true ? 'resume it' : 'answer'}`,
        ),
      ]
    case 'run-interrupt':
      return [
        colors.yellow('Run interrupted'),
        sanitizeBlock(withFlags(describeEnd(event.reason, event.message))),
      ]
    case 'run-take':
      return [colors.yellow(`${sanitizeLine(event.host)} took the run over: ${sanitizeLine(event.message)}`)]
    case 'run-resume':
      return resumeLines(event, colors)
    case 'vm-keep-failed':
      return [colors.yellow(`Could not keep the VM: ${sanitizeLine(event.message, 1_000)}`)]
    case 'disk-wait':
      return [
        colors.yellow(
          `Waited ${formatDuration(event.durationMs)} for free disk space: ${sanitizeLine(event.what)}`,
        ),
      ]
    case 'vm-end':
      return event.expected ? [] : [colors.red(`The VM ended: ${sanitizeLine(event.message, 2_000)}`)]
    case 'session-start':
      return event.session === 1
        ? []
        : [colors.yellow(`Session ${event.session} with the agent${event.resumed ? ', resumed' : ''}`)]
    case 'session-end':
      // Where the VM is saved, its own line says so.
      return ['closed', 'parked'].includes(event.reason)
        ? []
        : [colors.yellow(`Session ended: ${sanitizeLine(event.message)}`)]
    case 'plan-update':
      return planUpdateLines(event, before, colors)
    case 'step-start':
      return isSmall(state.plan) ? [] : [`${colors.cyan('▸')} ${stepTitle(state, event.stepId)}`]
    case 'step-retry':
      return [
        colors.yellow(
          `↻ ${stepTitle(state, event.stepId)}: attempt ${event.attempt}, because ${sanitizeLine(event.reason, 300)}`,
        ),
      ]
    case 'turn-retry': {
      const { message, delayMs } = event
      return [colors.yellow(`↻ The model request failed: ${asClause(message)}; retry ${retryTime(delayMs)}`)]
    }
    case 'model-retry': {
      // A changed request is sent at once, which nobody needs to know.
      const { cause, delayMs, fallback } = event
      if (fallback !== undefined)
        return [
          colors.yellow(
            `↻ The model cannot answer: ${asClause(cause)}; ${sanitizeLine(fallback, 200)} is asked instead`,
          ),
        ]
      if (delayMs === 0) return []
      return [colors.yellow(`↻ The model server refused: ${asClause(cause)}; retry ${retryTime(delayMs)}`)]
    }
    case 'step-end':
      return stepEndLines(event, state, colors)
    case 'agent-start':
      return agentStartLines(event, colors)
    case 'agent-end':
      return agentEndLines(event, colors)
    case 'context-compact':
      return [compactLine(event, colors)]
    case 'context-shown':
      return detail.verbose === true ? event.sections.map((section) => sectionLine(section, colors)) : []
    case 'steer-request':
    case 'agent-cancel-request':
    case 'steer-seen':
    case 'pause-request':
    case 'resume-request':
    case 'pause-start':
    case 'pause-end':
      return steeringLines(event, colors)
    case 'tool-start':
      if (isShownOtherwise(event)) return []
      return belowProgram(event.parentCallId, [
        ...(detail.verbose === true
          ? [colors.dim(`    ${sanitizeLine(event.tool, 60)}`), ...argumentLines(event.arguments, colors)]
          : [colors.dim(`    ${sanitizeLine(event.tool, 60)} ${describeArguments(event.arguments)}`)]),
      ])
    case 'tool-end':
      if (isShownOtherwise(event) && event.error === undefined && detail.verbose !== true) return []
      return belowProgram(
        before?.openCalls[event.callId]?.parentCallId,
        toolEndLines(event, colors, detail, Object.keys(before?.openCalls ?? {}).length < 2),
      )
    case 'turn-end':
      return turnEndLines(event, colors, detail)
    case 'model-end':
      return detail.verbose === true ? modelEndLines(event, colors) : []
    case 'approval-request':
      return [`${colors.yellow('?')} ${describeQuestion(event)}`, ...offerLines(event.request)]
    case 'approval-decision':
      return [decisionLine(event, colors, before)]
    case 'approval-revoke': {
      const { approvalId, by } = event
      const id = sanitizeLine(approvalId, 100)
      return [colors.yellow(`The answer for this run to ${id} was revoked by ${sanitizeLine(by, 60)}`)]
    }
    case 'egress-denied':
      return [
        colors.yellow(`Refused: ${sanitizeLine(event.target)}: ${sanitizeLine(withFlags(event.reason))}`),
      ]
    case 'note':
      return [
        colors[event.level === 'warn' ? 'yellow' : 'dim'](`    the agent says: ${sanitizeLine(event.text)}`),
      ]
    case 'memory-propose':
    case 'note-propose':
    case 'notes-decide':
      return noteEventLines(event, colors)
    case 'hook-end':
      return underPath(event.agentPath ?? 'root', hookLines(event, colors), colors)
    case 'host-tool-start':
      return underPath(event.agentPath, [hostToolLine(event, colors)], colors)
    case 'vm-access':
      return [colors.yellow(accessLine(event))]
    case 'apply-end':
    case 'undo-end':
      return broughtHomeLines(event, colors)
    case 'cancel-request':
      return [colors.yellow(`Cancellation requested by ${sanitizeLine(event.by)}`)]
    case 'run-end':
      return runEndLines(event, state, colors)
    case 'apply-start':
    case 'changes-ready':
    case 'checkpoint':
    case 'egress-end':
    case 'egress-start':
    case 'host-tool-end':
    case 'model-start':
    case 'undo-start':
    case 'vm-kept':
      return []
    default:
      // A new type needs a case: does not compile without.
      event satisfies never
      return []
  }
}

/** The lines of a call that a program made stand below its own call. */
function belowProgram(parentCallId: string | undefined, lines: readonly string[]): string[] {
  return parentCallId === undefined ? [...lines] : lines.map((line) => `  ${line}`)
}

/** Whether the call's plan follows, or its question. */
function isShownOtherwise({ tool, stepId }: Pick<Of<'tool-start'>, 'tool' | 'stepId'>): boolean {
  return (tool === planTool && stepId === 'plan') || tool === askTool
}

/** What the agent did after the checkpoint is shown again as it is done again. */
function resumeLines({ message, checkpointId, reached = [] }: Of<'run-resume'>, colors: Colors): string[] {
  const [why = ''] = message.split('\n')
  const from =
    checkpointId === null ? 'the run starts from its beginning' : 'the run continues from its last checkpoint'
  const again = `  programs may send again what they sent since then to ${reached.map((target) => sanitizeLine(target, 100)).join(', ')}`
  const lines = [`⟲ ${asClause(why)}; ${from}, in a new VM`, ...(reached.length === 0 ? [] : [again])]
  return lines.map(colors.yellow)
}

/** A sentence of another program as part of one of ours. */
function asClause(sentence: string): string {
  return sanitizeLine(sentence, 300).replace(/\.$/, '')
}

function retryTime(delayMs: number): string {
  return delayMs === 0 ? 'at once' : `in ${formatDuration(delayMs)}`
}

function accessLine({ kind, detail }: Of<'vm-access'>): string {
  if (kind === 'forward') return `A client connected to port ${sanitizeLine(detail, 10)} of the VM`
  return kind === 'shell'
    ? 'A shell was opened in the VM; its changes are part of this run'
    : `A command was run in the VM: ${sanitizeLine(detail, 200)}`
}

/** How many of each list of paths are shown. */
const toldPaths = 5

function broughtHomeLines(event: Of<'apply-end'> | Of<'undo-end'>, colors: Colors): string[] {
  const { conflicts } = event
  const failed = event.type === 'apply-end' ? event.failed : []
  const leftOut = event.type === 'apply-end' && event.leftOut > 0 ? `, ${event.leftOut} left out` : ''
  const head =
    event.type === 'apply-end'
      ? `Applied ${formatCount(event.applied, 'path')}${describeParts(event.parts ?? [])}${leftOut}`
      : `Undone: ${formatCount(event.restored, 'path')} restored`
  const rest =
    event.total === undefined ? '' : `; of this run ${formatCount(event.total, 'path')} applied now`
  const held = [...conflicts, ...failed]
  const told = held
    .slice(0, toldPaths)
    .map(({ path, reason }) => colors.yellow(`  not done: ${sanitizeLine(path)}: ${sanitizeLine(reason)}`))
  const more = held.length > toldPaths ? [colors.dim(`  and ${held.length - toldPaths} more`)] : []
  return [`${head}${rest}`, ...told, ...more]
}

/** The phases that took a noticeable time, in their order, behind the sum of all. */
function vmLine({ start, phasesMs, accelerator, confinement }: Of<'vm-ready'>, colors: Colors): string {
  const phases = Object.entries(phasesMs)
  const sum = phases.reduce((total, [, ms]) => total + ms, 0)
  const shown = phases.filter(([, ms]) => ms >= 100)
  const list = shown.map(([name, ms]) => `${sanitizeLine(name, 20)} ${formatDuration(ms)}`).join(', ')
  const which = start === 'saved' ? 'Kept VM ready' : 'VM ready'
  return `${which} in ${formatDuration(sum)} · ${sanitizeLine(accelerator, 100)} · ${sanitizeLine(confinement, 100)}${colors.dim(list === '' ? '' : ` · ${list}`)}`
}

function keptLine(runId = 'RUN', colors: Colors): string {
  return colors.dim(
    `The VM is kept. Continue in it: caisson run --continue ${runId} "TASK". Remove it with its run: caisson runs rm ${runId}`,
  )
}

/** Neither the CPU nor a sandbox around QEMU isolates the guest. */
function unsafeLines({ accelerator, confinement }: Of<'vm-ready'>, colors: Colors): string[] {
  if (accelerator !== 'tcg' || confinement.startsWith('bubblewrap')) return []
  return [
    colors.red(
      '  No bubblewrap around QEMU, and software emulation is no security boundary: a hostile guest may reach this machine.',
    ),
    colors.red(
      '  Install bubblewrap and allow it user namespaces, or stop the run. For details, run: caisson doctor',
    ),
  ]
}

/** Why the VM, or its way of starting, is not the expected one. */
function coldLines({ start, coldReason }: Of<'vm-ready'>, colors: Colors): string[] {
  if (coldReason === undefined) return []
  // Still a copy of a template: only the VM that the run before kept could not be had.
  if (start === 'template') return [colors.yellow(`  a new VM: ${sanitizeLine(withFlags(coldReason), 500)}`)]
  return [
    colors.yellow(
      `  booted from scratch (slower), because no template could be used: ${sanitizeLine(withFlags(coldReason), 500)}`,
    ),
    colors.dim('  to fix it, run: caisson doctor'),
  ]
}

type Of<T extends string> = Extract<AgentEvent | HostEvent, { type: T }>

function workspaceLines(event: Of<'workspace-ready'>, colors: Colors): string[] {
  const lines = [`Workspace: ${formatCount(event.files, 'file')}, ${formatBytes(event.bytes)}`]
  const told = event.examples.filter(({ reason }) => reason !== 'ignored')
  for (const { path, reason } of told.slice(0, 5)) {
    lines.push(colors.yellow(`  left out: ${sanitizeLine(path)} (${reason.replaceAll('_', ' ')})`))
  }
  if (told.some(({ reason }) => reason === 'rules_changed'))
    lines.push(
      colors.dim(
        '  an earlier run changed the ignore rules; to copy these paths too, use --accept-ignore-rules',
      ),
    )
  for (const pattern of event.unmatched ?? [])
    lines.push(
      colors.yellow(
        `  --include ${sanitizeLine(pattern)} matches no path; in an ignored directory a pattern needs a slash: --include 'DIRECTORY/NAME'`,
      ),
    )
  lines.push(...restLines(event, Math.min(told.length, 5), colors))
  for (const folder of event.folders ?? []) lines.push(...folderLines(folder, colors))
  return lines
}

/** How many paths were left out beyond those that are named. */
function restLines(
  { leftOut, examples }: Pick<Of<'workspace-ready'>, 'leftOut' | 'examples'>,
  named: number,
  colors: Colors,
): string[] {
  const rest = leftOut - named
  if (rest <= 0) return []
  const areIgnored =
    examples.length === leftOut && examples.filter(({ reason }) => reason !== 'ignored').length <= named
  return [colors.dim(`  left out: ${formatCount(rest, areIgnored ? 'ignored path' : 'more path')}`)]
}

function folderLines(
  folder: NonNullable<Of<'workspace-ready'>['folders']>[number],
  colors: Colors,
): string[] {
  const what = `${formatCount(folder.files, 'file')}, ${formatBytes(folder.bytes)}`
  const told = folder.examples.filter(({ reason }) => reason !== 'ignored').slice(0, 5)
  return [
    `Folder ${sanitizeLine(folder.path)}: ${what}, read-only at /mnt/folders/${sanitizeLine(folder.name)}`,
    ...told.map(({ path, reason }) =>
      colors.yellow(`  left out: ${sanitizeLine(path)} (${reason.replaceAll('_', ' ')})`),
    ),
    ...restLines(folder, told.length, colors),
  ]
}

function runStartLines(event: Of<'run-start'>, colors: Colors): string[] {
  const { directory, model, provider, mode, planFrom, workflow, forkedFrom, mergedFrom } = event
  const how = mode === 'plan' ? ' · plan only, no changes' : ''
  // A run of a fleet that no host has begun has none.
  const asked = model === '' ? '' : ` · model ${sanitizeLine(model)} (${sanitizeLine(provider)})`
  const head = `Run in ${sanitizeLine(directory)}${asked}${how}`
  const images = (event.images ?? []).map(({ path, image }) =>
    colors.dim(`  with ${sanitizeLine(path)}: ${describeImage(image)}`),
  )
  const carriedOut =
    workflow === undefined
      ? planFrom && `the plan of ${sanitizeLine(planFrom)}`
      : `the workflow ${sanitizeLine(`${workflow.name}@${workflow.version}`)} (${workflow.sha256.slice(0, 12)})`
  const given = carriedOut === undefined ? [] : [colors.dim(`  with ${carriedOut}`)]
  const plan = [...images, ...given]
  if (mergedFrom !== undefined) return [head, colors.dim(`  merged from ${mergedFrom.join(', ')}`)]
  if (forkedFrom === undefined) return [head, ...plan]
  const { runId, step, despite = [] } = forkedFrom
  const from = colors.dim(`  continues ${runId} from ${sanitizeLine(step)}`)
  const kept = despite.map((effect) => colors.yellow(`  stays: ${sanitizeLine(effect)}`))
  return [head, ...plan, from, ...kept]
}

function planUpdateLines(event: Of<'plan-update'>, before: RunState | undefined, colors: Colors): string[] {
  const { plan, revision, reason } = event
  const head = `${revision === 1 ? 'Plan' : `Plan, revision ${revision}`}: ${sanitizeLine(plan.goal)}`
  const why = reason === undefined ? [] : [`  because ${sanitizeLine(reason)}`]
  const known = before?.plan ?? null
  if (known === null && isSmall(plan)) return [colors.bold(`Task: ${sanitizeLine(plan.goal)}`)]
  const steps = known === null ? planLines(plan, colors) : planChanges(known, plan, colors)
  return [colors.bold(head), ...why, ...steps]
}

/** Whether a plan is one step whose line would only repeat the goal. */
function isSmall(plan: Plan | null): boolean {
  const [only, ...more] = plan?.steps ?? []
  const hasDetails = only?.kind === 'agent' || (only?.retries ?? 0) > 0 || only?.model !== undefined
  return only !== undefined && more.length === 0 && only.title === plan?.goal && !hasDetails
}

/** A step as `2/3 TITLE`. */
export function stepTitle(state: RunState, stepId: string): string {
  const index = state.plan?.steps.findIndex(({ id }) => id === stepId) ?? -1
  const title = state.plan?.steps[index]?.title ?? stepId
  return index < 0 ? sanitizeLine(title) : `${index + 1}/${state.plan?.steps.length} ${sanitizeLine(title)}`
}

function stepEndLines(event: Of<'step-end'>, state: RunState, colors: Colors): string[] {
  const mark = { completed: colors.green('✔'), failed: colors.red('✘'), skipped: '–', cancelled: '–' }[
    event.state
  ]
  const word = event.state === 'completed' ? '' : ` ${event.state}`
  const title = isSmall(state.plan) ? event.state : `${stepTitle(state, event.stepId)}${word}`
  const head = `${mark} ${title}`
  if (event.text === '') return [head]
  const isLong = event.text.trimEnd().split('\n').length > answerMaxLines
  return [head, sanitizeBlock(event.text, '    │ ', isLong ? longAnswerLines : answerMaxLines)]
}

function runEndLines(event: Of<'run-end'>, state: RunState, colors: Colors): string[] {
  const color = { completed: colors.green, failed: colors.red, cancelled: colors.yellow }[event.outcome]
  const tokens = event.usage.inputTokens + event.usage.outputTokens
  const facts = [
    formatDuration(event.durationMs),
    formatCount(state.toolCalls, 'tool call'),
    `${state.isUsageEstimated ? 'about ' : ''}${tokens} tokens`,
    ...(state.costUsd === null || state.costUsd === 0 ? [] : [formatCost(state.costUsd)]),
  ]
  // A plan's last answer is often the run's: once is enough.
  const isShown = event.summary === '' || isLastAnswer(event.summary, state) || isOnlyPlanned(event, state)
  const lines = isShown ? [] : ['', sanitizeBlock(event.summary), '']
  lines.push(`${color(`Run ${event.outcome}`)} · ${facts.join(' · ')}`)
  if (event.outcome !== 'completed')
    lines.push(sanitizeBlock(withFlags(describeEnd(event.reason, newsOf(event.message, state)))))
  return lines
}

/** Why a run ended; a message that begins with the reason's own word says it once. */
export function describeEnd(reason: string, message: string): string {
  return message.startsWith(reason) ? message : `${reason}: ${message}`
}

/** The message of an ending, without what a step already said at its end. */
function newsOf(message: string, state: RunState): string {
  const shown = Object.values(state.steps).find(
    ({ text }) => text !== '' && text.split('\n').length <= answerMaxLines && message.endsWith(`: ${text}`),
  )
  return shown === undefined ? message : message.slice(0, -shown.text.length - 2)
}

/** Whether all that came of the run is its plan, which was shown when it was made. */
function isOnlyPlanned({ outcome }: Of<'run-end'>, { steps }: RunState): boolean {
  const states = Object.values(steps)
  return outcome === 'completed' && states.length > 0 && states.every(({ state }) => state === 'pending')
}

/** Whether the text was shown in full when the last step ended. */
function isLastAnswer(text: string, state: RunState): boolean {
  const last = state.plan?.steps.at(-1)
  return (
    last !== undefined && state.steps[last.id]?.text === text && text.split('\n').length <= answerMaxLines
  )
}
