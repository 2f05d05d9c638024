/** Orders that the offline model carries out with tools of the host: searches of the web, notes of proposals, `math`. */
import { showArithmetic } from './arithmetic.ts'
import type { PastCall, PastConversation } from './conversation.ts'
import type { UserIntent } from './intents.ts'
import { call, type OfflineReply, quoteOutput, say } from './reply.ts'

export type HostIntent = Extract<UserIntent, { kind: 'search-web' | 'add-note' | 'list-notes' }>

/** Whether the order needs a tool of the host, or the run offers no other for it. */
export function hostIntentOf(
  intent: UserIntent,
  { tools }: Pick<PastConversation, 'tools'>,
): HostIntent | Extract<UserIntent, { kind: 'calculate' }> | null {
  switch (intent.kind) {
    case 'search-web':
    case 'add-note':
    case 'list-notes':
      return intent
    case 'search':
      return !tools.has('search_files') && tools.has('web_search')
        ? { kind: 'search-web', query: intent.text }
        : null
    case 'calculate':
      return tools.has('math') && (isWhole(intent.expression) || !tools.has('run_python')) ? intent : null
    default:
      return null
  }
}

/** Whether `math` is exact for the expression: whole numbers without division. */
function isWhole(expression: string): boolean {
  return /^[-+*()\s\d]+$/.test(expression)
}

/** One call, then the answer from its output. */
export function actOnHost(
  intent: NonNullable<ReturnType<typeof hostIntentOf>>,
  conversation: PastConversation,
  reasoning: string,
): OfflineReply {
  const [past] = conversation.calls
  if (past !== undefined) return say(answerOf(intent, past), reasoning)
  switch (intent.kind) {
    case 'search-web':
      return call(conversation, 'web_search', { query: intent.query }, reasoning)
    case 'add-note': {
      const { proposalId, text } = intent
      return call(conversation, 'governance_note', { action: 'add', proposalId, text }, reasoning)
    }
    case 'list-notes':
      return call(
        conversation,
        'governance_note',
        { action: 'list', proposalId: intent.proposalId },
        reasoning,
      )
    case 'calculate': {
      // As people write it, without the spaces that Python's tokens have.
      const expression = intent.expression.replaceAll(/(?<=\() | (?=\))/g, '')
      return call(conversation, 'math', { expression }, reasoning)
    }
  }
}

function answerOf(intent: Parameters<typeof actOnHost>[0], past: PastCall): string {
  const output = quoteOutput(past.output, 2_000)
  switch (intent.kind) {
    case 'search-web':
      return `Searched the web for ${JSON.stringify(intent.query)}:\n${output}`
    case 'add-note':
      return `Proposed a note for ${intent.proposalId}: ${JSON.stringify(intent.text)}. ${output}`
    case 'list-notes':
      return `Notes of ${intent.proposalId}:\n${output}`
    case 'calculate':
      return `Calculation result: ${output} (from ${showArithmetic(intent.expression)})`
  }
}
