/**
 * Tells an answer from a text that only promises one, and words what the model is told after it. Looks at a text alone;
 * whether evidence is needed is the application's to say.
 */
export type TextClassification = 'verified_final_response' | 'intent_only_narration' | 'non_progressing'

export interface TextAssessment {
  readonly classification: TextClassification
  /** In place of the default for the class; a callback's own goes before it. */
  readonly transientInstruction?: string
}

export const DEFAULT_INTENT_ONLY_NARRATION_RECOVERY_INSTRUCTION =
  'You said what you will do and did not do it. If it needs a tool, call the tool now. If earlier tool results already hold the answer, give the final answer instead.'

export const DEFAULT_NON_PROGRESSING_TEXT_RECOVERY_INSTRUCTION =
  'Your last reply brought the task no further. If a tool is needed, call it now. Otherwise give the final answer, based on the tool results so far.'

export const DEFAULT_TOOL_VALIDATION_RECOVERY_INSTRUCTION =
  'Your last tool call was not run, because its arguments do not fit the tool. Read the issues in its result and make the call again with corrected arguments.'

/** Told once when calls go round in a circle; who goes on is stopped. */
export const DEFAULT_REPEATED_TOOL_CALL_RECOVERY_INSTRUCTION =
  'You have made the same tool calls again, and they gave nothing new. Do something else, or answer in text with what you have; the same calls will not be run again.'

/** What tools do, as models announce it. Not `know` or `explain`, with which answers begin. */
const deeds =
  'run|check|search|open|update|inspect|read|look|review|use|call|execute|try|fetch|edit|write|ask|list|find|save|create|delete|remove|move|install|test|verify|examine|analy[sz]e|explore|view|scan|query|load|download|start|begin|proceed'
const promise = new RegExp(
  `^(?:(?:ok(?:ay)?|sure|next|first|then|now|alright)[,.:!]?\\s+)?(?:i\\s+will|i['’]ll|let\\s+me|(?:i\\s+am\\s+|i['’]m\\s+)?going\\s+to)\\s+(?:(?:now|first|then|just)\\s+)?(?:${deeds})\\b`,
  'i',
)

/** A promise stands at the head of its text. */
const headChars = 200

/**
 * The class of a text that is not empty. Without a need for evidence every text is an answer; with one, an English
 * announcement of what comes next is not.
 */
export function classifyText(text: string, requiresActionEvidence: boolean): TextClassification {
  return requiresActionEvidence && promise.test(text.trimStart().slice(0, headChars))
    ? 'intent_only_narration'
    : 'verified_final_response'
}

/** What the model is told after a text of this class was rejected. */
export function recoveryInstruction(
  classification: Exclude<TextClassification, 'verified_final_response'>,
): string {
  return classification === 'intent_only_narration'
    ? DEFAULT_INTENT_ONLY_NARRATION_RECOVERY_INSTRUCTION
    : DEFAULT_NON_PROGRESSING_TEXT_RECOVERY_INSTRUCTION
}
