/** What a conversation shows of its runs: plan, cost, answers, and the models that the configuration names. */
import { initialRunState, reduceRun } from '#specs/protocol/run-state.ts'
import { addUsage, noUsage } from '#specs/protocol/task.ts'
import { formatCost } from '../../files/format.ts'
import type { Host } from '../../host.ts'
import type { RunSummary } from '../../journal/run-store.ts'
import { decisionLine, describeQuestion } from '../render/call-lines.ts'
import type { Colors } from '../render/colors.ts'
import { sanitizeLine } from '../render/sanitize.ts'

/** Answers that are listed. */
const answersMax = 30

/** The plan of a run with the command that runs it. */
export async function planOfRun(host: Host, runId: string | undefined): Promise<string[]> {
  const plan = runId === undefined ? null : (await host.runs.fold(runId)).state.plan
  if (plan === null) return ['There is no plan yet.']
  const steps = plan.steps.map(({ title }, at) => `  ${at + 1}. ${sanitizeLine(title, 200)}`)
  return [`Plan: ${sanitizeLine(plan.goal, 200)}`, ...steps]
}

export function costLine(runs: readonly RunSummary[]): string {
  let usage = noUsage
  let cost: number | null = null
  for (const { state } of runs) {
    usage = addUsage(usage, state.usage)
    if (state.costUsd !== null) cost = (cost ?? 0) + state.costUsd
  }
  const price = cost === null ? 'no price is configured' : formatCost(cost)
  return `Tasks: ${runs.length} · tokens: ${usage.inputTokens} in, ${usage.outputTokens} out · cost: ${price}`
}

/** The model of the next task with its provider, and the others that the configuration names. */
export async function modelLines(host: Host, model: string | undefined): Promise<string[]> {
  const chosen = await host.provider(model === undefined ? {} : { model })
  const { providers, models, prices, model: configured } = await host.config()
  const named = [
    ...(configured === undefined ? [] : [configured]),
    ...Object.values(providers).flatMap((provider) => provider.models ?? []),
    ...Object.keys(models),
    ...Object.keys(prices),
  ]
  const others = [...new Set([...named, 'caisson/offline'])].filter((one) => one !== chosen.model)
  return [
    `Model: ${chosen.model === '' ? 'chosen from the server’s list' : sanitizeLine(chosen.model)} (${sanitizeLine(chosen.name)})`,
    ...(others.length === 0 ? [] : [`  also: ${others.map((one) => sanitizeLine(one, 100)).join(', ')}`]),
    '  To use another from the next task on: /model ID',
  ]
}

/** Who answered what in these runs, oldest first; of many the newest. */
export async function answerLines(
  host: Host,
  runs: readonly RunSummary[],
  colors: Colors,
): Promise<string[]> {
  const lines: string[] = []
  for (const { id } of runs.toReversed()) lines.push(...(await answersOf(host, id, colors)))
  if (lines.length === 0) return ['No approval was answered in this conversation.']
  const shown = lines.slice(-answersMax)
  const more = lines.length - shown.length
  return ['Answered in this conversation:', ...(more === 0 ? [] : [`  … ${more} earlier`]), ...shown]
}

async function answersOf(host: Host, runId: string, colors: Colors): Promise<string[]> {
  const lines: string[] = []
  let state = initialRunState
  await host.runs.visit(runId, (line) => {
    const before = state
    state = reduceRun(state, line)
    if (line.source !== 'host' || line.event.type !== 'approval-decision') return
    const { approvalId } = line.event
    const asked = Object.hasOwn(before.pendingApprovals, approvalId)
      ? before.pendingApprovals[approvalId]
      : undefined
    if (asked !== undefined) lines.push(`  ${describeQuestion({ request: asked })}`)
    lines.push(`  ${decisionLine(line.event, colors, before)}`)
  })
  return lines
}
