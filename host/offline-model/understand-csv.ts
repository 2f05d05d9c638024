/** The analysis of a data file, the only request in free wording: any wording gives the same general report. */
import type { UserIntent } from './intents.ts'
import { type Clause, quotedPattern, readToken } from './phrases.ts'

/** What a rule can use besides its clause. */
export interface CsvContext {
  /** Paths in the workspace as listed; folders end with `/`. */
  readonly paths: readonly string[]
  /** The path named last, for `it`. */
  readonly last: string | null
}

const asks =
  /\b(analy[sz]\w*|analysis|reports?|summari[sz]\w*|summary|statistics|stats|insights?|explore|profile|describe|chart|plot|graph|visuali[sz]\w*|overview)\b/i
const aboutData = /\b(csv|tsv|data|dataset|data set|spreadsheet)\b/i
const changes =
  /^(?:delete|remove|erase|rm|rename|move|mv|copy|cp|replace|change|append|run|execute|search|grep|count|list|calculate|compute)\b/i
const dataEnding = /\.(csv|tsv)$/i

type Analysis = Extract<UserIntent, { kind: 'analyze-csv' }>

/** The analysis that a clause asks for; a question when the file is not clear; null when it asks for none. */
export function readAnalysis(
  clause: Clause,
  scene: CsvContext,
): readonly UserIntent[] | { question: string } | null {
  if (changes.test(clause.text) || !asks.test(clause.text)) return null
  const names = namesIn(clause)
  const named = names.find((name) => dataEnding.test(name))
  if (named === undefined && !aboutData.test(clause.text)) return null
  const known = scene.paths.filter((path) => dataEnding.test(path))
  const path = named === undefined ? (known.length === 1 ? known[0] : undefined) : resolveName(named, known)
  if (path === undefined) return { question: askForFile(named, known) }
  const start: Analysis = {
    kind: 'analyze-csv',
    path,
    report: beside(path, 'report.md'),
    chart: beside(path, 'chart.svg'),
  }
  return [completeAnalysis(start, clause)]
}

/** Whether a clause after an analysis only adds details to it. */
export function isAnalysisDetail(clause: Clause): boolean {
  if (changes.test(clause.text) || namesIn(clause).some((name) => dataEnding.test(name))) return false
  return /\b(report|chart|plot|graph|svg|summary|findings|results?|tell|explain|include|show|draw|highlight|beside|next to|trends?|averages?|insights?|numbers?|statistics|python)\b/i.test(
    clause.text,
  )
}

/** The analysis with the output names that a clause gives. */
export function completeAnalysis(analysis: Analysis, clause: Clause): Analysis {
  const names = namesIn(clause)
  const report = names.find((name) => /\.(md|markdown)$/i.test(name))
  const chart = names.find((name) => /\.svg$/i.test(name))
  return {
    ...analysis,
    report: report === undefined ? analysis.report : beside(analysis.path, report),
    chart: chart === undefined ? analysis.chart : beside(analysis.path, chart),
  }
}

/** A bare name goes beside the data; a path stays as it is. */
function beside(path: string, name: string): string {
  if (name.includes('/')) return name.replace(/^(\.\/)+/, '')
  return path.includes('/') ? `${path.slice(0, path.lastIndexOf('/'))}/${name}` : name
}

/** The listed path that the name means; the name itself when none matches, so that the step reports it. */
function resolveName(name: string, known: readonly string[]): string | undefined {
  const plain = name.replace(/^(\.\/)+/, '')
  if (known.includes(plain)) return plain
  const ends = known.filter((path) => path.endsWith(`/${plain}`))
  return ends.length > 1 ? undefined : (ends[0] ?? plain)
}

function askForFile(named: string | undefined, known: readonly string[]): string {
  if (known.length === 0) return 'no CSV file was named, and the listing shows none; name the file to analyze'
  const shown = known.slice(0, 8).join(', ')
  return `${named === undefined ? 'several CSV files are there' : `several files are named ${named}`}: ${shown}; say which one`
}

function namesIn(clause: Clause): string[] {
  const token = new RegExp(`${quotedPattern}|[^\\s,;:()"'\uE000\uE001]+`, 'g')
  return (clause.text.match(token) ?? []).map((part) => readToken(part, clause.quoted))
}
