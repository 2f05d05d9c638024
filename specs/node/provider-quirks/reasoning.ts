/** More or less reasoning, asked for in the form of a model's family. */
import type { CompletionMessage, CompletionRequest } from '../../protocol/completion-request.ts'
import type { ModelCapabilities } from './model-families.ts'
import type { OptionalField } from './rejection.ts'

type Effort = NonNullable<CompletionRequest['reasoning_effort']>
type Refused = ReadonlySet<OptionalField>

/** Part of an answer's tokens that reasoning may use, so that the answer itself is not cut off. */
const budgetShare = { low: 1 / 4, other: 1 / 2 }

/** The fields that say how much to reason; a field that its server refused is not relied on. */
export function reasoningFields(
  request: CompletionRequest,
  capabilities: ModelCapabilities,
  refused: Refused,
): Partial<CompletionRequest> {
  const { reasoning_effort: effort, chat_template_kwargs: given, tools } = request
  const { reasoning, lowEffort, emptyAnswers } = capabilities
  const isSwitch = reasoning === 'enable_thinking' || reasoning === 'thinking'
  // A server that takes no switch of the template may still read the effort.
  if (reasoning === 'effort' || (isSwitch && refused.has('chat_template_kwargs'))) return {}
  const kwargs = {
    ...(effort !== undefined && isSwitch ? { [reasoning]: isThinking(effort) } : {}),
    ...(effort === 'low' && lowEffort ? { low_effort: true } : {}),
    ...(emptyAnswers && tools !== undefined ? { force_nonempty_content: true } : {}),
    ...given,
  }
  return {
    reasoning_effort: undefined,
    ...(Object.keys(kwargs).length === 0 ? {} : { chat_template_kwargs: kwargs }),
  }
}

/** Maximum tokens of reasoning within an answer of `length` tokens; null: it is not limited. */
export function reasoningBudget(
  { reasoning_effort: effort, chat_template_kwargs: given }: CompletionRequest,
  capabilities: ModelCapabilities,
  length: number,
  refused: Refused,
): number | null {
  if (!capabilities.reasoningBudget || refused.has('reasoning_budget')) return null
  if (given?.enable_thinking === false || (effort !== undefined && !isThinking(effort))) return null
  return Math.max(1, Math.floor(length * (effort === 'low' ? budgetShare.low : budgetShare.other)))
}

/** Older Nemotrons read the switch from the system message. */
export function switchReasoning(
  messages: readonly CompletionMessage[],
  { reasoning_effort: effort }: CompletionRequest,
  { reasoning }: ModelCapabilities,
): readonly CompletionMessage[] {
  if (effort === undefined || (reasoning !== 'slash' && reasoning !== 'detailed')) return messages
  const isOn = isThinking(effort)
  const words =
    reasoning === 'slash' ? (isOn ? '/think' : '/no_think') : `detailed thinking ${isOn ? 'on' : 'off'}`
  return [{ role: 'system', content: words }, ...messages]
}

function isThinking(effort: Effort): boolean {
  return effort !== 'none' && effort !== 'minimal'
}
