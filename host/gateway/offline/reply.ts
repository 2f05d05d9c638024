/** What the offline model can say in one turn, and how its calls are fitted to the tools that the request offers. */
import type { Conversation, OfferedTool, PastCall } from './conversation.ts'
import { answerMark } from './csv-report-script.ts'

export interface WantedCall {
  readonly name: string
  readonly arguments: Readonly<Record<string, unknown>>
}

export interface Reply {
  /** One sentence on the rule that was followed. */
  readonly reasoning: string
  /** Empty beside calls. */
  readonly text: string
  readonly calls: readonly WantedCall[]
}

/** Every text answer begins so. */
export const offlineLabel = '[offline model]'

export function say(text: string, reasoning: string): Reply {
  return { reasoning, text: `${offlineLabel} ${text}`, calls: [] }
}

/** An answer that goes on so tells of work that was not done. */
export const notDone = 'It could not be done'

/** An answer for what was not done; the steps that need this one read it and do nothing either. */
export function sayNotDone(why: string, reasoning: string): Reply {
  return say(`${notDone}: ${why}`, reasoning)
}

/** Whether one of the results of earlier steps says that it was not done. */
export function hasNotDone(results: readonly string[]): boolean {
  return results.some((result) => result.startsWith(`${offlineLabel} ${notDone}`))
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

/** A call of `name`, or the reply that it is missing. Wishes that its schema does not know are left out. */
export function call(
  conversation: Conversation,
  name: string,
  wishes: Readonly<Record<string, unknown>>,
  reasoning: string,
): Reply {
  const tool = conversation.tools.get(name)
  if (tool === undefined) {
    return sayNotDone(`this needs the tool ${name}, which this run does not offer.`, reasoning)
  }
  const entries = Object.entries(wishes).flatMap(([wish, value]) => {
    const parameter = findParameter(tool, wish)
    return parameter === null ? [] : [[parameter, value] as const]
  })
  return { reasoning, text: '', calls: [{ name, arguments: Object.fromEntries(entries) }] }
}

function findParameter(tool: OfferedTool, wish: string): string | null {
  if (tool.parameters.length === 0 || tool.parameters.includes(wish)) return wish
  return otherNames[wish]?.find((name) => tool.parameters.includes(name)) ?? null
}

/** Foreign text for an answer, cut at a bound. */
export function quoteOutput(output: string, maxChars = 4_000): string {
  const text = output.trim()
  return text.length <= maxChars
    ? text
    : `${text.slice(0, maxChars).toWellFormed()}\n[… ${text.length - maxChars} characters more …]`
}

/** The lines of a script's output that are meant for the answer; all of it when there are none. */
export function answersIn(past: PastCall | undefined): string {
  const lines = (past?.output ?? '').split('\n').filter((line) => line.startsWith(answerMark))
  if (lines.length > 0) return lines.map((line) => line.slice(answerMark.length)).join('\n')
  return `The script did not give a result:\n${quoteOutput(past?.output ?? '')}`
}
