/** The two steps of an analysis: look at the file; write and run the scripts for its columns, and look at what they wrote. */
import type { Conversation } from './conversation.ts'
import { type CsvTable, chooseReport, findProfile } from './csv-choice.ts'
import { writeProfileScript } from './csv-profile-script.ts'
import { writeReportScript } from './csv-report-script.ts'
import type { Intent } from './intents.ts'
import { answersIn, call, conclude, quoteOutput, type Reply, say, sayNotDone } from './reply.ts'

type CsvIntent = Extract<Intent, { kind: 'inspect-csv' | 'analyse-csv' }>

/** Lines that are shown of a file that was written. */
const sampleLines = 12
const pythonTimeoutMs = 300_000

/** The next turn; the calls so far all went well. */
export function actOnCsv(intent: CsvIntent, conversation: Conversation, reasoning: string): Reply {
  if (intent.kind === 'inspect-csv') return inspect(intent.path, conversation, reasoning)
  return analyse(intent, conversation, reasoning)
}

function inspect(path: string, conversation: Conversation, reasoning: string): Reply {
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

function analyse(
  intent: Extract<CsvIntent, { kind: 'analyse-csv' }>,
  conversation: Conversation,
  reasoning: string,
): Reply {
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

function noProfile(path: string, output: string, reasoning: string): Reply {
  return sayNotDone(`the first look at ${path} gave no result:\n${quoteOutput(output)}`, reasoning)
}

function profile(path: string, conversation: Conversation, reasoning: string): Reply {
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
