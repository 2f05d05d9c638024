/**
 * What the offline model decides from a CSV's profile: which columns are figures, which one groups, which one is time,
 * which is ranked. It sees the profile alone, so it works for any table.
 */
import { z } from 'zod'
import { profileMark } from './csv-profile-script.ts'

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
export type CsvColumn = z.infer<typeof Column>

export const CsvProfile = z.union([
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
export type CsvProfile = z.infer<typeof CsvProfile>
export type CsvTable = Extract<CsvProfile, { rows: number }>

/** What the report's script is written for; column numbers count from 0. */
export interface ReportChoice {
  readonly separator: string
  readonly columns: readonly { readonly type: string; readonly style: string }[]
  /** Columns whose means are worth a look, the first is the one that the chart shows. */
  readonly metrics: readonly number[]
  /** The column to group by. */
  readonly category: number | null
  readonly date: number | null
  /** Characters of an ISO date that name a period: 4 year, 7 month, 10 day. */
  readonly period: 4 | 7 | 10
  /** The column whose ten highest values are listed. */
  readonly top: number | null
  /** Columns that say which row a high value belongs to. */
  readonly labels: readonly number[]
  /** Most groups in a table. */
  readonly groups: number
  readonly report: string
  readonly chart: string
}

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

/** Chooses for one table. */
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

/** A text column with few values, else whole numbers with very few; fewer groups are easier to read, within reason. */
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

/** Row numbers and the like, whose mean says nothing. */
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
