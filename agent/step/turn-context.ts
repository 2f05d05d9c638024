/** Sections of the context that hooks give before a request, and the record of what a model gets of given sections. */
import type { ChatMessage } from '#runtime/llm/messages.ts'
import type { GivenTurnSection, ShownSection } from '#specs/protocol/context-section.ts'
import type { Result } from '#specs/protocol/error.ts'
import { renderTurnSections } from '../context/given-sections.ts'
import { sectionsShown } from '../context/opening.ts'
import { askBeforeTurn, isHookedBeforeTurns } from '../run/hooks.ts'
import type { AgentRun, Report } from '../run/run.ts'

/** Agents whose sections of the run are recorded. */
const recorded = new WeakSet<Report>()

/** The sections for the next request of a step; an error when a hook refuses the request. */
export async function giveContext(
  stepId: string,
  run: AgentRun,
  signal: AbortSignal,
): Promise<Result<readonly GivenTurnSection[], string>> {
  if (!recorded.has(run.report)) {
    recorded.add(run.report)
    await reportShown(stepId, sectionsShown(run), run)
  }
  if (!isHookedBeforeTurns(run)) return { ok: true, value: [] }
  const asked = await run.log.once(`context ${stepId}`, () => askBeforeTurn(stepId, run, signal))
  if (asked.decision === 'allow') return { ok: true, value: asked.context ?? [] }
  return { ok: false, error: `a hook refused the request: ${asked.reason ?? 'no reason given'}` }
}

/** The messages of a request outside of a step's conversation, with the sections that hooks give for it. */
export async function withContext(
  messages: readonly ChatMessage[],
  stepId: string,
  run: AgentRun,
  signal: AbortSignal,
): Promise<Result<readonly ChatMessage[], string>> {
  const given = await giveContext(stepId, run, signal)
  const last = messages.at(-1)
  if (!given.ok) return given
  if (given.value.length === 0 || last === undefined) return { ok: true, value: messages }
  const { text, shown } = renderTurnSections(given.value)
  await reportShown(stepId, shown, run)
  return { ok: true, value: [...messages.slice(0, -1), { ...last, content: `${last.content}\n\n${text}` }] }
}

export async function reportShown(
  stepId: string,
  shown: readonly ShownSection[],
  run: AgentRun,
): Promise<void> {
  if (shown.length > 0) await run.report.event({ type: 'context-shown', stepId, sections: [...shown] })
}
