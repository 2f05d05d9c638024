/**
 * Distinguishes an answer from a text that only announces one, and words the follow-up to the model. Where evidence is
 * required, the work that was done decides, in any language; the text only names the class.
 */
export type TextClassification = 'verified_final_response' | 'intent_only_narration' | 'non_progressing'

export interface TextAssessment {
  readonly classification: TextClassification
  /** Overrides the default text of the class; a callback's own text takes precedence. */
  readonly transientInstruction?: string
}

export const DEFAULT_INTENT_ONLY_NARRATION_RECOVERY_INSTRUCTION =
  'You said what you will do and did not do it. If it needs a tool, call the tool now. If earlier tool results already hold the answer, give the final answer instead.'

export const DEFAULT_NON_PROGRESSING_TEXT_RECOVERY_INSTRUCTION =
  'Your last reply brought the task no further. If a tool is needed, call it now. Otherwise give the final answer, based on the tool results so far.'

export const DEFAULT_TOOL_VALIDATION_RECOVERY_INSTRUCTION =
  'Your last tool call was not run, because its arguments do not fit the tool. Read the issues in its result and make the call again with corrected arguments.'

/** Sent once when calls repeat in a cycle; if they continue, the loop stops. */
export const DEFAULT_REPEATED_TOOL_CALL_RECOVERY_INSTRUCTION =
  'You have made the same tool calls again, and they gave nothing new. Do something else, or answer in text with what you have; the same calls will not be run again.'

/** Tool actions as models announce them. Excludes `know` or `explain`, with which answers begin. */
const deeds =
  'run|check|search|open|update|inspect|read|look|review|use|call|execute|try|fetch|edit|write|ask|list|find|save|create|delete|remove|move|install|test|verify|examine|analy[sz]e|explore|view|scan|query|load|download|start|begin|proceed'
const promise = new RegExp(
  `^(?:(?:ok(?:ay)?|sure|next|first|then|now|alright)[,.:!]?\\s+)?(?:i\\s+will|i['’]ll|let\\s+me|(?:i\\s+am\\s+|i['’]m\\s+)?going\\s+to)\\s+(?:(?:now|first|then|just)\\s+)?(?:${deeds})\\b`,
  'i',
)

/** An announcement is at the beginning of its text. */
const headChars = 200

/**
 * Classifies a non-empty text. Without required evidence every text is an answer. With it, no text is one before
 * something was done, and an English announcement of the next action never is.
 * @param hasActionEvidence whether a tool call was carried out; default false
 */
export function classifyText(
  text: string,
  requiresActionEvidence: boolean,
  hasActionEvidence = false,
): TextClassification {
  if (!requiresActionEvidence) return 'verified_final_response'
  if (promise.test(text.trimStart().slice(0, headChars))) return 'intent_only_narration'
  return hasActionEvidence ? 'verified_final_response' : 'non_progressing'
}

/** Message to the model after a text of this class was rejected. */
export function recoveryInstruction(
  classification: Exclude<TextClassification, 'verified_final_response'>,
): string {
  return classification === 'intent_only_narration'
    ? DEFAULT_INTENT_ONLY_NARRATION_RECOVERY_INSTRUCTION
    : DEFAULT_NON_PROGRESSING_TEXT_RECOVERY_INSTRUCTION
}
