/** Replies of one turn, and calls that match the tools of the request. */
import type { OfferedTool, PastCall, PastConversation } from './conversation.ts'

/** Prefix of the output lines that belong in the answer. */
export const answerMark = 'ANSWER: '
/** Prefix of the output line that says why a script failed. */
export const failureMark = 'FAILED: '

interface ToolCall {
  readonly name: string
  readonly arguments: Readonly<Record<string, unknown>>
}

export interface OfflineReply {
  /** One sentence on the rule that matched. */
  readonly reasoning: string
  /** Empty beside calls. */
  readonly text: string
  readonly calls: readonly ToolCall[]
}

/** Prefix of every text answer, after the mark of a failure. */
export const offlineLabel = '[offline model]'
/** The agent fails a step whose answer starts with this; its prompt says so. */
const stepFailedMark = 'STEP FAILED:'

/** How a step ended, in words. */
export interface StepAnswer {
  readonly done: boolean
  readonly text: string
}

export function say(text: string, reasoning: string): OfflineReply {
  return { reasoning, text: `${offlineLabel} ${text}`, calls: [] }
}

/** An answer for what was not done: the agent fails the step, and no step that needs it runs. */
export function sayNotDone(why: string, reasoning: string): OfflineReply {
  return { reasoning, text: `${stepFailedMark} ${offlineLabel} ${why}`, calls: [] }
}

/** Whether an answer is one of {@link sayNotDone}. */
export function isNotDone({ text }: OfflineReply): boolean {
  return text.startsWith(stepFailedMark)
}

/** An outcome as an answer. */
export function conclude({ done, text }: StepAnswer, reasoning: string): OfflineReply {
  return done ? say(text, reasoning) : sayNotDone(text, reasoning)
}

/** Other names that a parameter may have in a tool's schema. */
const otherNames: Readonly<Record<string, readonly string[]>> = {
  path: ['filePath', 'file_path', 'file', 'directory'],
  content: ['text', 'contents'],
  oldText: ['old_text', 'oldString', 'old_string', 'search'],
  newText: ['new_text', 'newString', 'new_string', 'replacement'],
  replaceAll: ['replace_all'],
  from: ['source', 'sourcePath', 'path'],
  to: ['destination', 'target', 'destinationPath', 'newPath'],
  pattern: ['query', 'text', 'regex'],
  limit: ['maxLines', 'lines', 'lineCount'],
  command: ['cmd', 'script'],
  code: ['script', 'source'],
}

/**
 * A call of `name`, or the reply that the tool is missing. Arguments that its schema does not have are dropped, unless
 * they are a person's own.
 */
export function call(
  conversation: PastConversation,
  name: string,
  args: Readonly<Record<string, unknown>>,
  reasoning: string,
  isOwn = false,
): OfflineReply {
  const tool = conversation.tools.get(name)
  if (tool === undefined) {
    return sayNotDone(`this needs the tool ${name}, which this run does not offer.`, reasoning)
  }
  const entries = Object.entries(args).flatMap(([argument, value]) => {
    const parameter = isOwn ? argument : findParameter(tool, argument)
    return parameter === null ? [] : [[parameter, value] as const]
  })
  return { reasoning, text: '', calls: [{ name, arguments: Object.fromEntries(entries) }] }
}

function findParameter(tool: OfferedTool, argument: string): string | null {
  if (tool.parameters.length === 0 || tool.parameters.includes(argument)) return argument
  return otherNames[argument]?.find((name) => tool.parameters.includes(name)) ?? null
}

/** Output of a tool for an answer, truncated. */
export function quoteOutput(output: string, maxChars = 4_000): string {
  const text = output.trim()
  return text.length <= maxChars
    ? text
    : `${text.slice(0, maxChars).toWellFormed()}\n[… ${text.length - maxChars} characters more …]`
}

/** A denial for people, with its hint; the tool's own wording addresses a model. */
export function describeDenial({ name, output }: PastCall): string {
  const hint =
    /\bwas (?:denied|not answered)[^.]*\.\s*([\s\S]*)$/.exec(output)?.[1] ??
    output.replace(/^Error \([a-z_]+\):\s*/, '')
  return `${name} was denied. ${quoteOutput(hint, 1_500)}`.trimEnd()
}

/** The answer lines of a script's output; a script without any did not finish. */
export function answersIn(past: PastCall | undefined): StepAnswer {
  const lines = (past?.output ?? '').split('\n')
  const failure = lines.find((line) => line.startsWith(failureMark))
  const answers = lines
    .filter((line) => line.startsWith(answerMark))
    .map((line) => line.slice(answerMark.length))
  if (failure !== undefined)
    return { done: false, text: [failure.slice(failureMark.length), ...answers].join('\n') }
  if (answers.length > 0) return { done: true, text: answers.join('\n') }
  return { done: false, text: `the script did not give a result:\n${quoteOutput(past?.output ?? '')}` }
}

/** Whether a program exited with 0, by the last line of the tools that run code; null when it is missing. */
export function endedWell(past: PastCall | undefined): boolean | null {
  const last = past?.output.trimEnd().split('\n').at(-1) ?? ''
  if (last.startsWith('[exit code 0,')) return true
  return /^\[(?:exit code \d|ended |the disk is full)/.test(last) ? false : null
}
