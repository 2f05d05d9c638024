/** The closed list of requests that the offline model covers, with their wording in instructions and titles. */

import { toolKindOf } from '#specs/protocol/tool-names.ts'
import { showArithmetic } from './arithmetic.ts'
import { type ChoreName, choreNames, chores, choreWrites, patternsOf } from './chores.ts'

export type UserIntent =
  | { kind: 'inspect-csv'; path: string }
  | { kind: 'analyze-csv'; path: string; report: string; chart: string }
  | { kind: 'create'; path: string; content: string }
  | { kind: 'make-folder'; path: string }
  | { kind: 'replace'; path: string; from: string; to: string }
  | { kind: 'append'; path: string; text: string }
  | { kind: 'move'; path: string; to: string }
  | { kind: 'copy'; path: string; to: string }
  | { kind: 'delete'; path: string }
  | { kind: 'search'; text: string; path: string }
  | { kind: 'count'; unit: CountUnit; path: string }
  /** Counts in each file below the path whose name matches. */
  | { kind: 'count-each'; unit: CountUnit; pattern: string; path: string }
  | { kind: 'occurrences'; text: string; path: string }
  | { kind: 'count-files'; pattern: string; path: string }
  | { kind: 'list'; pattern: string; path: string }
  | { kind: 'read'; path: string }
  | { kind: 'run'; command: string }
  /** A script of `chores.ts`, with the fields that its sentence names. */
  | { kind: 'chore'; chore: ChoreName; path?: string; pattern?: string; text?: string; to?: string }
  | { kind: 'delete-files'; pattern: string; path: string }
  | { kind: 'help' }
  /** As the person wrote it. */
  | { kind: 'calculate'; expression: string }
  | { kind: 'fetch-page'; url: string }
  | { kind: 'summarize-page'; url: string }
  /** Saves the page, or only its first lines. */
  | { kind: 'save-page'; url: string; path: string; what: 'page' | 'summary' }
  /** A question to the user; without options it takes any text, or yes or no. */
  | { kind: 'ask'; question: string; options: readonly string[]; confirm: boolean }
  | { kind: 'remember'; note: string }
  /** Words to search for; empty for all. */
  | { kind: 'recall'; query: string }
  | { kind: 'use-skill'; skill: string }
  | { kind: 'search-web'; query: string }
  | { kind: 'add-note'; proposalId: string; text: string }
  | { kind: 'list-notes'; proposalId: string }
  /** One call of a tool by its name; the arguments are JSON. */
  | { kind: 'call-tool'; tool: string; args: string }
  | { kind: 'look'; reason: string }

export const countUnits = ['lines', 'words', 'characters', 'bytes', 'rows'] as const
export type CountUnit = (typeof countUnits)[number]

/**
 * For each intent: its constant fields, and a sentence with the other fields in braces. In the instructions of a step each
 * of these is a JSON string, so that it is parsed back exactly.
 */
const sentences: readonly (readonly [Partial<UserIntent>, string])[] = [
  [{ kind: 'inspect-csv' }, 'Inspect the data file {path}.'],
  [{ kind: 'analyze-csv' }, 'Analyze the data file {path}, report to {report}, chart to {chart}.'],
  [{ kind: 'create' }, 'Create the file {path} with the content {content}.'],
  [{ kind: 'make-folder' }, 'Make the folder {path}.'],
  [{ kind: 'replace' }, 'Replace {from} with {to} in {path}.'],
  [{ kind: 'append' }, 'Append the line {text} to {path}.'],
  [{ kind: 'move' }, 'Move {path} to {to}.'],
  [{ kind: 'copy' }, 'Copy {path} to {to}.'],
  [{ kind: 'delete' }, 'Delete {path}.'],
  [{ kind: 'search' }, 'Search for {text} in {path}.'],
  ...countUnits.flatMap(
    (unit) =>
      [
        [{ kind: 'count', unit }, `Count the ${unit} of {path}.`],
        [{ kind: 'count-each', unit }, `Count the ${unit} of every file named {pattern} in {path}.`],
      ] as const,
  ),
  [{ kind: 'occurrences' }, 'Count the occurrences of {text} in {path}.'],
  [{ kind: 'count-files' }, 'Count the files named {pattern} in {path}.'],
  [{ kind: 'list' }, 'List the files named {pattern} in {path}.'],
  [{ kind: 'read' }, 'Read {path}.'],
  [{ kind: 'run' }, 'Run the command {command}.'],
  ...choreNames.map((chore) => [{ kind: 'chore', chore }, chores[chore].sentence] as const),
  [{ kind: 'delete-files' }, 'Delete every file named {pattern} in {path}.'],
  [{ kind: 'help' }, 'Say what the offline model can do.'],
  [{ kind: 'calculate' }, 'Calculate {expression}.'],
  [{ kind: 'fetch-page' }, 'Fetch the page {url}.'],
  [{ kind: 'summarize-page' }, 'Summarize the page {url}.'],
  [{ kind: 'save-page', what: 'page' }, 'Save the page {url} to {path}.'],
  [{ kind: 'save-page', what: 'summary' }, 'Save the summary of {url} to {path}.'],
  [{ kind: 'ask', options: [], confirm: true }, 'Ask the user {question}, yes or no.'],
  [{ kind: 'ask', options: [], confirm: false }, 'Ask the user {question}.'],
  [{ kind: 'ask', confirm: false }, 'Ask the user {question}, one of {options}.'],
  [{ kind: 'remember' }, 'Remember {note}.'],
  [{ kind: 'recall' }, 'Recall what is known of {query}.'],
  [{ kind: 'use-skill' }, 'Load the skill {skill}.'],
  [{ kind: 'search-web' }, 'Search the web for {query}.'],
  [{ kind: 'add-note' }, 'Add to the proposal {proposalId} the note {text}.'],
  [{ kind: 'list-notes' }, 'List the notes of the proposal {proposalId}.'],
  [{ kind: 'call-tool' }, 'Call the tool {tool} with {args}.'],
  [{ kind: 'look' }, 'Look at the workspace and say what is there. Why: {reason}.'],
]
const field = /\{(\w+)\}/g
const jsonString = /"(?:[^"\\]|\\.)*"/g

/** The instructions of a step for the intent. */
export function wordIntent(intent: UserIntent): string {
  const values = Object.entries(intent)
  const sentence = sentences.find(([fixed]) =>
    Object.entries(fixed).every(([name, value]) =>
      values.some(([given, of]) => given === name && String(of) === String(value)),
    ),
  )
  const text = new Map(
    values.map(([name, value]) => [name, Array.isArray(value) ? JSON.stringify(value) : value]),
  )
  return (sentence?.[1] ?? '').replaceAll(field, (_, name: string) => JSON.stringify(text.get(name)))
}

/** Parses the output of {@link wordIntent}; null for any other text. */
export function readIntent(instructions: string): UserIntent | null {
  const strings: string[] = []
  const shape = instructions.trim().replaceAll(jsonString, (text) => {
    strings.push(String(parseJson(text) ?? ''))
    return '{}'
  })
  const [fixed, sentence] = sentences.find(([, text]) => text.replaceAll(field, '{}') === shape) ?? []
  if (fixed === undefined || sentence === undefined) return null
  const names = [...sentence.matchAll(field)].map(([, name = '']) => name)
  const read = names.map((name, at) => {
    const text = strings[at] ?? ''
    return [name, name === 'options' ? (parseJson(text) ?? []) : text] as const
  })
  return { ...fixed, ...Object.fromEntries(read) } as UserIntent
}

/** The intent in a few words for people; nothing parses it. */
export function describeIntent(intent: UserIntent): string {
  const q = quoteForPeople
  switch (intent.kind) {
    case 'inspect-csv':
      return `Look at the columns of ${q(intent.path)}`
    case 'analyze-csv':
      return `Analyze ${q(intent.path)}, write ${q(from(intent.path, intent.report))} and ${q(from(intent.path, intent.chart))}`
    case 'create':
      return `Create ${q(intent.path)}`
    case 'list':
      return `List ${intent.pattern === '*' ? 'the files' : q(intent.pattern)} in ${place(intent.path)}`
    case 'search':
    case 'occurrences':
      return `${intent.kind === 'search' ? 'Search for' : 'Count'} ${q(intent.text)} in ${place(intent.path)}`
    case 'count-each':
      return `Count the ${intent.unit} of every ${intent.pattern === '*' ? 'file' : `file ${q(intent.pattern)}`} in ${place(intent.path)}`
    case 'count-files':
      return `Count ${intent.pattern === '*' ? 'the files' : `the files ${q(intent.pattern)}`} in ${place(intent.path)}`
    case 'run':
      return `Run ${intent.command}`
    case 'calculate':
      return `Calculate ${showArithmetic(intent.expression)}`
    case 'ask':
      return `Ask: ${intent.question}`
    case 'recall':
      return intent.query === ''
        ? 'Recall what is remembered'
        : `Recall what is remembered of ${q(intent.query)}`
    case 'call-tool': {
      const args = parseJson(intent.args)
      const values = typeof args === 'object' && args !== null ? Object.entries(args) : []
      const shown = values.map(([name, value]) => `${name} ${q(toText(value))}`)
      return `Call ${intent.tool}${shown.length === 0 ? '' : ` with ${shown.join(', ')}`}`
    }
    case 'look':
      return 'Look at the workspace'
    case 'chore':
    case 'delete-files': {
      const pattern = intent.pattern ?? '*'
      const kind = pattern === '*' ? 'file' : patternsOf(pattern)[0] === pattern ? pattern : `${pattern} file`
      return wordIntent(intent)
        .replace(/\.$/, '')
        .replace(/file named "[^"]*"/, kind)
        .replace(/\b(?:in )?"\."/, (found) => (found.startsWith('in') ? 'in the workspace' : 'the workspace'))
        .replaceAll(jsonString, (text) => q(String(parseJson(text) ?? '')))
    }
    default:
      return wordIntent(intent)
        .replace(/\.$/, '')
        .replaceAll(jsonString, (text) => quoteForPeople(String(parseJson(text) ?? '')))
  }
}

/** `other` relative to the directory of `path`. */
function from(path: string, other: string): string {
  const folder = path.slice(0, path.lastIndexOf('/') + 1)
  return other.startsWith(folder) ? other.slice(folder.length) : other
}

function place(path: string): string {
  return path === '.' ? 'the workspace' : quoteForPeople(path)
}

/** Quotes only text that could be misread. */
function quoteForPeople(text: string): string {
  return /^[\p{L}\p{N}_./*+-]+$/u.test(text) ? text : JSON.stringify(text)
}

/** Paths that the intent writes; `*` for any. */
export function pathsWritten(intent: UserIntent): readonly string[] {
  switch (intent.kind) {
    case 'analyze-csv':
      return [intent.report, intent.chart]
    case 'create':
    case 'save-page':
    case 'make-folder':
    case 'replace':
    case 'append':
    case 'delete':
      return [intent.path]
    case 'move':
      return [intent.path, intent.to]
    case 'copy':
      return [intent.to]
    case 'run':
    case 'delete-files':
      return ['*']
    case 'call-tool':
      return /^(?:read|search|fetch|think)$/.test(toolKindOf(intent.tool)) ? [] : ['*']
    case 'chore': {
      const field = choreWrites(intent.chore)
      return field === undefined ? [] : [field === '*' ? '*' : (intent[field] ?? '*')]
    }
    default:
      return []
  }
}

/** Paths that the intent reads; `*` for any. */
export function pathsRead(intent: UserIntent): readonly string[] {
  switch (intent.kind) {
    case 'calculate':
    case 'fetch-page':
    case 'summarize-page':
    case 'save-page':
    case 'ask':
    case 'remember':
    case 'recall':
    case 'use-skill':
    case 'search-web':
    case 'add-note':
    case 'list-notes':
    case 'help':
      return []
    case 'chore':
      return [intent.path === undefined || intent.path === '.' ? '*' : intent.path]
    case 'look':
    case 'run':
    case 'call-tool':
      return ['*']
    default:
      return [intent.path === '.' ? '*' : intent.path]
  }
}

function toText(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value)
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
