/** The two steps of an analysis: profile the file, then write and run a script for its columns and read its output files. */
import { z } from 'zod'
import type { PastConversation } from './conversation.ts'
import { profileMark, writeProfileScript } from './csv-profile-script.ts'
import { type ReportChoice, writeReportScript } from './csv-report-script.ts'
import type { UserIntent } from './intents.ts'
import { answersIn, call, conclude, type OfflineReply, quoteOutput, say, sayNotDone } from './reply.ts'

type CsvIntent = Extract<UserIntent, { kind: 'inspect-csv' | 'analyze-csv' }>

/** Lines shown of an output file. */
const sampleLines = 12
const pythonTimeoutMs = 300_000

/** The next turn. All calls so far succeeded. */
export function actOnCsv(intent: CsvIntent, conversation: PastConversation, reasoning: string): OfflineReply {
  if (intent.kind === 'inspect-csv') return inspect(intent.path, conversation, reasoning)
  return analyze(intent, conversation, reasoning)
}

function inspect(path: string, conversation: PastConversation, reasoning: string): OfflineReply {
  const [looked, listed] = conversation.calls
  if (looked === undefined) return profile(path, conversation, `${reasoning} First the shape of the file.`)
  const found = findProfile(looked.output)
  if (found === null) return noProfile(path, looked.output, reasoning)
  if ('error' in found) {
    if (listed === undefined && conversation.tools.has('list_files')) {
      return call(
        conversation,
        'list_files',
        { path: '.' },
        `${reasoning} It cannot be read, so I look at what is there.`,
      )
    }
    const seen = listed === undefined ? '' : `\nThe workspace holds:\n${quoteOutput(listed.output, 2_000)}`
    return sayNotDone(`${path}: ${found.error}.${seen}`, reasoning)
  }
  const columns = found.columns
    .slice(0, 30)
    .map(({ name, type, missing }) => `${name} (${type}, ${missing} missing)`)
  return say(`${path} has ${found.rows} rows and ${found.width} columns: ${columns.join(', ')}.`, reasoning)
}

function analyze(
  intent: Extract<CsvIntent, { kind: 'analyze-csv' }>,
  conversation: PastConversation,
  reasoning: string,
): OfflineReply {
  const [looked, ran, ...checked] = conversation.calls
  if (looked === undefined)
    return profile(intent.path, conversation, `${reasoning} The columns decide the script.`)
  const found = findProfile(looked.output)
  if (found === null) return noProfile(intent.path, looked.output, reasoning)
  if ('error' in found) return sayNotDone(`${intent.path}: ${found.error}.`, reasoning)
  if (ran === undefined) {
    const code = writeReportScript(intent.path, chooseReport(found, intent))
    return call(
      conversation,
      'run_python',
      { code, timeoutMs: pythonTimeoutMs },
      `${reasoning} ${describeChoice(found, intent)}`,
    )
  }
  const findings = answersIn(ran)
  if (findings.done && checked.length === 0 && conversation.tools.has('read_file')) {
    const looks = [intent.report, intent.chart].map((path) =>
      call(conversation, 'read_file', { path, limit: sampleLines }, reasoning),
    )
    return {
      reasoning: `${reasoning} A look at what was written.`,
      text: '',
      calls: looks.flatMap(({ calls }) => calls),
    }
  }
  return conclude(findings, reasoning)
}

function noProfile(path: string, output: string, reasoning: string): OfflineReply {
  return sayNotDone(`the first look at ${path} gave no result:\n${quoteOutput(output)}`, reasoning)
}

function profile(path: string, conversation: PastConversation, reasoning: string): OfflineReply {
  return call(
    conversation,
    'run_python',
    { code: writeProfileScript(path), timeoutMs: pythonTimeoutMs },
    reasoning,
  )
}

function describeChoice(table: CsvTable, outputs: { report: string; chart: string }): string {
  const choice = chooseReport(table, outputs)
  const nameOf = (index: number | null | undefined): string =>
    index === null || index === undefined ? 'none' : (table.columns[index]?.name ?? 'none')
  return `Figures: ${nameOf(choice.metrics[0])} first; grouped by ${nameOf(choice.category)}; time: ${nameOf(choice.date)}.`
}

const Column = z.object({
  name: z.string(),
  type: z.enum(['number', 'date', 'text', 'empty']),
  style: z.string(),
  missing: z.number(),
  distinct: z.number(),
  integer: z.boolean().optional(),
  min: z.number().optional(),
  max: z.number().optional(),
  first: z.string().optional(),
  last: z.string().optional(),
})
type CsvColumn = z.infer<typeof Column>

const CsvProfile = z.union([
  z.object({ error: z.string() }),
  z.object({
    rows: z.number(),
    width: z.number(),
    columns: z.array(Column),
    separator: z.enum([',', ';', '\t', '|']),
    encoding: z.string(),
    ragged: z.number(),
    named: z.boolean(),
  }),
])
type CsvProfile = z.infer<typeof CsvProfile>
type CsvTable = Extract<CsvProfile, { rows: number }>

/** The profile in a script's output; null when there is none. */
export function findProfile(output: string): CsvProfile | null {
  const line = output.split('\n').find((text) => text.startsWith(profileMark))
  if (line === undefined) return null
  try {
    return CsvProfile.safeParse(JSON.parse(line.slice(profileMark.length))).data ?? null
  } catch {
    return null
  }
}

/**
 * Chooses what the report shows from the profile alone, so that it works for any table: the metrics, the grouping column,
 * the date column and the ranked column.
 */
export function chooseReport(table: CsvTable, outputs: { report: string; chart: string }): ReportChoice {
  const numbered = table.columns.map((column, index) => ({ ...column, index }))
  const metrics = numbered.filter((column) => column.type === 'number' && !isIdentifier(column, table.rows))
  const date = numbered.find((column) => column.type === 'date') ?? null
  const category = chooseCategory(numbered, table.rows)
  const texts = numbered.filter((column) => column.type === 'text' && column.index !== category?.index)
  const naming = texts.toSorted((a, b) => b.distinct - a.distinct)[0]
  const labels = [date, naming, category].filter((column) => column !== null && column !== undefined)
  return {
    separator: table.separator,
    columns: table.columns.map(({ type, style }) => ({ type, style })),
    metrics: metrics.map(({ index }) => index),
    category: category?.index ?? null,
    date: date?.index ?? null,
    period: choosePeriod(date),
    top: metrics[0]?.index ?? null,
    labels: labels.slice(0, 3).map(({ index }) => index),
    groups: 60,
    ...outputs,
  }
}

type Numbered = CsvColumn & { index: number }

/** A text column with few distinct values, else whole numbers with very few. */
function chooseCategory(columns: readonly Numbered[], rows: number): Numbered | null {
  const most = Math.max(2, Math.min(40, Math.floor(rows / 2)))
  const fits = (column: Numbered, bound: number): boolean => column.distinct >= 2 && column.distinct <= bound
  const texts = columns.filter((column) => column.type === 'text' && fits(column, most))
  const small = texts.filter((column) => column.distinct <= 12)
  const byMissing = (a: Numbered, b: Numbered): number => a.missing - b.missing || a.index - b.index
  const text = (small.length > 0 ? small : texts).toSorted(byMissing)[0]
  if (text !== undefined) return text
  const codes = columns.filter((column) => column.type === 'number' && column.integer === true)
  return codes.find((column) => rows >= 20 && fits(column, 10)) ?? null
}

/** Row numbers and the like: their mean is meaningless. */
function isIdentifier(column: CsvColumn, rows: number): boolean {
  if (column.integer !== true) return false
  if (/(^|[\s_-])(id|index|nr|no|number|key|code|zip|year)$/i.test(column.name)) return true
  const { min, max } = column
  const counts = min !== undefined && max !== undefined && max - min === rows - 1 && column.distinct === rows
  return counts && rows > 20
}

function choosePeriod(date: CsvColumn | null): 4 | 7 | 10 {
  if (date?.first === undefined || date.last === undefined) return 7
  const days = (Date.parse(date.last) - Date.parse(date.first)) / 86_400_000
  if (days <= 62) return 10
  return days <= 366 * 8 ? 7 : 4
}
