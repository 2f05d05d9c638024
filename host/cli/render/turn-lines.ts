/** Lines of what the model says in a turn, and of what a tool gave. Pure; untrusted text goes through sanitize.ts. */
import type { AgentEvent, HostEvent } from '#specs/protocol/event.ts'
import { describeImage } from '#specs/protocol/image.ts'
import { formatBytes, formatCost, formatCount, formatDuration } from '../../files/format.ts'
import type { Colors } from './colors.ts'
import { parseObject } from './json-lines.ts'
import { sanitizeBlock, sanitizeLine } from './sanitize.ts'

type Of<T extends string> = Extract<AgentEvent | HostEvent, { type: T }>

/** How much is shown. */
export interface Detail {
  /** Whole arguments and outputs, reasoning, and model requests. */
  readonly verbose?: boolean | undefined
  /** What the model reasoned. */
  readonly reasoning?: boolean | undefined
  /** Whether the run is a task of a conversation, which keeps its VM. */
  readonly inConversation?: boolean | undefined
}

const margin = '    │ '
/** Lines of an output that are shown from its beginning and from its end. */
const headLines = 3
const tailLines = 5
/** Lines of a diff, and diffs of a call, that are shown. */
const diffMaxLines = 12
const diffsMax = 3
const verboseMaxLines = 2_000
/** Tools whose output a person wants to see, where the agent gives no exit code. */
const commands = ['run_bash', 'run_javascript', 'run_python']

/** What the model reasoned; its text is for {@link HeldTexts}. */
export function turnEndLines(event: Of<'turn-end'>, colors: Colors, detail: Detail): string[] {
  const isReasoningShown =
    (detail.reasoning === true || detail.verbose === true) && (event.reasoning ?? '') !== ''
  return isReasoningShown
    ? block(event.reasoning ?? '', '    ┆ ', detail.verbose === true ? verboseMaxLines : 40).map(colors.dim)
    : []
}

/** What the model said in a turn. */
export function saidLines(text: string): string[] {
  return block(text, margin, 40)
}

/** All arguments of a call. */
export function argumentLines(json: string, colors: Colors): string[] {
  const given = parseObject(json)
  const text = given === null ? json : withLineEnds(JSON.stringify(given, null, 2))
  return block(text, margin, verboseMaxLines).map(colors.dim)
}

/** @param isAlone whether no other call ran meanwhile, so that it needs no name */
export function toolEndLines(
  event: Of<'tool-end'>,
  colors: Colors,
  detail: Detail,
  isAlone: boolean,
): string[] {
  const { tool, error, exitCode, signal, cut, durationMs, diffs = [] } = event
  const isBad = error !== undefined || signal !== undefined || (exitCode ?? 0) !== 0
  const name = isAlone && error === undefined ? '' : sanitizeLine(tool, 60)
  const facts = [
    name,
    error === undefined ? '' : `${error.code}: ${sanitizeLine(error.message, 300)}`,
    exitCode === undefined ? '' : `exit ${exitCode}`,
    event.image === undefined ? '' : `shown to the model: ${describeImage(event.image)}`,
    signal === undefined ? '' : sanitizeLine(signal, 20),
    durationMs < 100 ? '' : formatDuration(durationMs),
    cut === undefined ? '' : `${formatBytes(cut.bytes)} in all`,
    ...(event.corrections ?? []).map((text) => (detail.verbose === true ? sanitizeLine(text, 200) : '')),
  ].filter((fact) => fact !== '')
  const head = `    ${isBad ? '✘' : '✔'} ${facts.join(' · ')}`
  const isCommand = exitCode !== undefined || commands.includes(tool)
  const isOutputShown = detail.verbose === true || (diffs.length === 0 && (isBad || isCommand))
  // The model gets refused arguments as JSON; the head says the same in words.
  const isRefusal = error?.code === 'invalid_input' && event.output.startsWith('{"ok":false,')
  const repeated =
    error !== undefined && (event.output.includes(error.message) || (isRefusal && detail.verbose !== true))
  // The head says so already.
  const text =
    exitCode === undefined ? event.output : event.output.replace(/\n?\[exit code [^\n[]*\]\s*$/, '')
  const output = isOutputShown && !repeated ? outputLines(text, detail) : []
  const lines = [...diffLines(diffs, colors, detail), ...output.map(colors.dim)]
  const isHeadNeeded = facts.length > 0
  return [...(isHeadNeeded ? [isBad ? colors.yellow(head) : colors.dim(head)] : []), ...lines]
}

function outputLines(output: string, { verbose }: Detail): string[] {
  const lines = output.trimEnd().split('\n')
  if (output.trim() === '') return []
  if (verbose === true || lines.length <= headLines + tailLines + 1)
    return block(lines.join('\n'), margin, verboseMaxLines)
  const left = lines.length - headLines - tailLines
  return [
    ...block(lines.slice(0, headLines).join('\n'), margin, headLines),
    `${margin}… ${formatCount(left, 'more line')}`,
    ...block(lines.slice(-tailLines).join('\n'), margin, tailLines),
  ]
}

/** Line ends of its texts as such; a backslash before an n stays. */
function withLineEnds(json: string): string {
  return json.replace(/\\\\|\\n/g, (pair) => (pair === '\\n' ? '\n' : pair))
}

function diffLines(
  diffs: NonNullable<Of<'tool-end'>['diffs']>,
  colors: Colors,
  { verbose }: Detail,
): string[] {
  const shown = diffs
    .slice(0, verbose === true ? diffs.length : diffsMax)
    .flatMap(({ path, added, removed, diff = '' }) => {
      const head = `    ${sanitizeLine(path, 200)} ${colors.green(`+${added}`)} ${colors.red(`-${removed}`)}`
      const rows = block(
        withoutFileHeader(diff.trimEnd()),
        margin,
        verbose === true ? verboseMaxLines : diffMaxLines,
      )
      return [head, ...rows.map((row) => colorOf(row.slice(margin.length), colors)(row))]
    })
  const rest = diffs.length - diffsMax
  return verbose === true || rest <= 0
    ? shown
    : [...shown, colors.dim(`    … ${formatCount(rest, 'more file')}`)]
}

/** Only what is before the first hunk names the files; below it a line may look the same. */
function withoutFileHeader(diff: string): string {
  const start = diff.search(/^@@ /m)
  return start < 0 ? diff : diff.slice(start)
}

function colorOf(line: string, colors: Colors): (text: string) => string {
  if (line.startsWith('+')) return colors.green
  return line.startsWith('-') ? colors.red : colors.dim
}

/** A model request and what it took; shown in all detail. */
export function modelEndLines(event: Of<'model-end'>, colors: Colors): string[] {
  const { usage } = event
  const cached = usage.cachedTokens ? ` (${usage.cachedTokens} cached)` : ''
  const facts = [
    sanitizeLine(event.requestId ?? 'model request', 60),
    event.error === undefined ? `HTTP ${event.status}` : sanitizeLine(event.error, 200),
    ...[event.stepModel, event.fallback].map((model) =>
      model === undefined ? '' : sanitizeLine(model, 200),
    ),
    formatDuration(event.durationMs),
    `${usage.inputTokens}${cached} + ${usage.outputTokens} tokens`,
    // Of the offline model it is known to be nothing.
    event.costUsd === undefined || event.costUsd === 0 ? '' : formatCost(event.costUsd),
  ]
  return [colors.dim(`    ${facts.filter((fact) => fact !== '').join(' · ')}`)]
}

function block(text: string, rows: string, maxLines: number): string[] {
  const shown = sanitizeBlock(text, rows, maxLines)
  return shown === '' ? [] : shown.split('\n')
}
