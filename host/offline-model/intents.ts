/** What the offline model can be asked for: one closed list, and each entry's words in instructions and titles. */

export type Intent =
  | { kind: 'inspect-csv'; path: string }
  | { kind: 'analyse-csv'; path: string; report: string; chart: string }
  | { kind: 'create'; path: string; content: string }
  | { kind: 'make-folder'; path: string }
  | { kind: 'replace'; path: string; from: string; to: string }
  | { kind: 'append'; path: string; text: string }
  | { kind: 'move'; path: string; to: string }
  | { kind: 'copy'; path: string; to: string }
  | { kind: 'delete'; path: string }
  | { kind: 'search'; text: string; path: string }
  | { kind: 'count'; unit: CountUnit; path: string }
  /** Of each file below the path whose name fits. */
  | { kind: 'count-each'; unit: CountUnit; pattern: string; path: string }
  | { kind: 'occurrences'; text: string; path: string }
  | { kind: 'count-files'; pattern: string; path: string }
  | { kind: 'list'; pattern: string; path: string }
  | { kind: 'read'; path: string }
  | { kind: 'run'; command: string }
  | { kind: 'calculate'; expression: string }
  | { kind: 'fetch-page'; url: string }
  | { kind: 'summarise-page'; url: string }
  /** The page, or no more than its first lines. */
  | { kind: 'save-page'; url: string; path: string; what: 'page' | 'summary' }
  /** A question to the person; options none: any text, or yes or no. */
  | { kind: 'ask'; question: string; options: readonly string[]; confirm: boolean }
  | { kind: 'remember'; note: string }
  /** Words to look for; empty for all. */
  | { kind: 'recall'; query: string }
  | { kind: 'use-skill'; skill: string }
  | { kind: 'look'; reason: string }

export const countUnits = ['lines', 'words', 'characters', 'bytes', 'rows'] as const
export type CountUnit = (typeof countUnits)[number]

/** The step's instructions: plain English whose quoted parts are JSON strings, so that they are read back exactly. */
export function wordIntent(intent: Intent): string {
  const q = JSON.stringify
  switch (intent.kind) {
    case 'inspect-csv':
      return `Inspect the data file ${q(intent.path)}.`
    case 'analyse-csv':
      return `Analyse the data file ${q(intent.path)}, report to ${q(intent.report)}, chart to ${q(intent.chart)}.`
    case 'create':
      return `Create the file ${q(intent.path)} with the content ${q(intent.content)}.`
    case 'make-folder':
      return `Make the folder ${q(intent.path)}.`
    case 'replace':
      return `Replace ${q(intent.from)} with ${q(intent.to)} in ${q(intent.path)}.`
    case 'append':
      return `Append the line ${q(intent.text)} to ${q(intent.path)}.`
    case 'move':
      return `Move ${q(intent.path)} to ${q(intent.to)}.`
    case 'copy':
      return `Copy ${q(intent.path)} to ${q(intent.to)}.`
    case 'delete':
      return `Delete ${q(intent.path)}.`
    case 'search':
      return `Search for ${q(intent.text)} in ${q(intent.path)}.`
    case 'count':
      return `Count the ${intent.unit} of ${q(intent.path)}.`
    case 'count-each':
      return `Count the ${intent.unit} of every file named ${q(intent.pattern)} in ${q(intent.path)}.`
    case 'occurrences':
      return `Count the occurrences of ${q(intent.text)} in ${q(intent.path)}.`
    case 'count-files':
      return `Count the files named ${q(intent.pattern)} in ${q(intent.path)}.`
    case 'list':
      return `List the files named ${q(intent.pattern)} in ${q(intent.path)}.`
    case 'read':
      return `Read ${q(intent.path)}.`
    case 'run':
      return `Run the command ${q(intent.command)}.`
    case 'calculate':
      return `Calculate ${q(intent.expression)}.`
    case 'fetch-page':
      return `Fetch the page ${q(intent.url)}.`
    case 'summarise-page':
      return `Summarise the page ${q(intent.url)}.`
    case 'save-page':
      return `Save the ${intent.what === 'page' ? 'page' : 'summary of'} ${q(intent.url)} to ${q(intent.path)}.`
    case 'ask':
      if (intent.confirm) return `Ask the user ${q(intent.question)}, yes or no.`
      return intent.options.length === 0
        ? `Ask the user ${q(intent.question)}.`
        : `Ask the user ${q(intent.question)}, one of ${q(JSON.stringify(intent.options))}.`
    case 'remember':
      return `Remember ${q(intent.note)}.`
    case 'recall':
      return `Recall what is known of ${q(intent.query)}.`
    case 'use-skill':
      return `Load the skill ${q(intent.skill)}.`
    case 'look':
      return `Look at the workspace and say what is there. Why: ${q(intent.reason)}.`
  }
}

/** The intent in a few words for people; nothing reads them back. */
export function describeIntent(intent: Intent): string {
  const q = quoteForPeople
  switch (intent.kind) {
    case 'inspect-csv':
      return `Look at the columns of ${q(intent.path)}`
    case 'analyse-csv':
      return `Analyse ${q(intent.path)}, write ${q(from(intent.path, intent.report))} and ${q(from(intent.path, intent.chart))}`
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
      return `Calculate ${intent.expression}`
    case 'ask':
      return `Ask: ${intent.question}`
    case 'recall':
      return intent.query === ''
        ? 'Recall what is remembered'
        : `Recall what is remembered of ${q(intent.query)}`
    case 'look':
      return 'Look at the workspace'
    default:
      return wordIntent(intent)
        .replace(/\.$/, '')
        .replaceAll(/"(?:[^"\\]|\\.)*"/g, (text) => quoteForPeople(parseString(text)))
  }
}

/** `other` as seen beside `path`. */
function from(path: string, other: string): string {
  const folder = path.slice(0, path.lastIndexOf('/') + 1)
  return other.startsWith(folder) ? other.slice(folder.length) : other
}

function place(path: string): string {
  return path === '.' ? 'the workspace' : quoteForPeople(path)
}

/** Quotes only where it would not be clear where the text ends. */
function quoteForPeople(text: string): string {
  return /^[\p{L}\p{N}_./*+-]+$/u.test(text) ? text : JSON.stringify(text)
}

/** Reads what {@link wordIntent} wrote; null for any other text. */
export function readIntent(instructions: string): Intent | null {
  const strings: string[] = []
  const shape = instructions.trim().replaceAll(/"(?:[^"\\]|\\.)*"/g, (text) => {
    strings.push(parseString(text))
    return '$'
  })
  const [a = '', b = '', c = ''] = strings
  const [, count, each] = /^Count the (\w+) of (every file named \$ in )?\$\.$/.exec(shape) ?? []
  const unit = countUnits.find((name) => name === count)
  if (unit !== undefined)
    return each === undefined
      ? { kind: 'count', unit, path: a }
      : { kind: 'count-each', unit, pattern: a, path: b }
  switch (shape) {
    case 'Inspect the data file $.':
      return { kind: 'inspect-csv', path: a }
    case 'Analyse the data file $, report to $, chart to $.':
      return { kind: 'analyse-csv', path: a, report: b, chart: c }
    case 'Create the file $ with the content $.':
      return { kind: 'create', path: a, content: b }
    case 'Make the folder $.':
      return { kind: 'make-folder', path: a }
    case 'Replace $ with $ in $.':
      return { kind: 'replace', from: a, to: b, path: c }
    case 'Append the line $ to $.':
      return { kind: 'append', text: a, path: b }
    case 'Move $ to $.':
      return { kind: 'move', path: a, to: b }
    case 'Copy $ to $.':
      return { kind: 'copy', path: a, to: b }
    case 'Delete $.':
      return { kind: 'delete', path: a }
    case 'Search for $ in $.':
      return { kind: 'search', text: a, path: b }
    case 'Count the occurrences of $ in $.':
      return { kind: 'occurrences', text: a, path: b }
    case 'Count the files named $ in $.':
      return { kind: 'count-files', pattern: a, path: b }
    case 'List the files named $ in $.':
      return { kind: 'list', pattern: a, path: b }
    case 'Read $.':
      return { kind: 'read', path: a }
    case 'Run the command $.':
      return { kind: 'run', command: a }
    case 'Calculate $.':
      return { kind: 'calculate', expression: a }
    case 'Fetch the page $.':
      return { kind: 'fetch-page', url: a }
    case 'Summarise the page $.':
      return { kind: 'summarise-page', url: a }
    case 'Save the page $ to $.':
      return { kind: 'save-page', url: a, path: b, what: 'page' }
    case 'Save the summary of $ to $.':
      return { kind: 'save-page', url: a, path: b, what: 'summary' }
    case 'Ask the user $.':
    case 'Ask the user $, one of $.':
      return { kind: 'ask', question: a, options: parseStrings(b), confirm: false }
    case 'Ask the user $, yes or no.':
      return { kind: 'ask', question: a, options: [], confirm: true }
    case 'Remember $.':
      return { kind: 'remember', note: a }
    case 'Recall what is known of $.':
      return { kind: 'recall', query: a }
    case 'Load the skill $.':
      return { kind: 'use-skill', skill: a }
    case 'Look at the workspace and say what is there. Why: $.':
      return { kind: 'look', reason: a }
    default:
      return null
  }
}

/** Paths that the intent writes; `*` for any. */
export function pathsWritten(intent: Intent): readonly string[] {
  switch (intent.kind) {
    case 'analyse-csv':
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
      return ['*']
    default:
      return []
  }
}

/** Paths that the intent reads; `*` for any. */
export function pathsRead(intent: Intent): readonly string[] {
  switch (intent.kind) {
    case 'calculate':
    case 'fetch-page':
    case 'summarise-page':
    case 'save-page':
    case 'ask':
    case 'remember':
    case 'recall':
    case 'use-skill':
      return []
    case 'look':
    case 'run':
      return ['*']
    default:
      return [intent.path === '.' ? '*' : intent.path]
  }
}

function parseString(text: string): string {
  try {
    return String(JSON.parse(text))
  } catch {
    return ''
  }
}

function parseStrings(text: string): string[] {
  try {
    const list: unknown = JSON.parse(text)
    return Array.isArray(list) ? list.map(String) : []
  } catch {
    return []
  }
}
