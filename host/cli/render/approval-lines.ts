/**
 * An approval as rows for a terminal: its beginning for the question, all of it for who wants to see it.
 * Everything behind a margin is the agent's claim.
 */
import type { AccessQuestion, ApprovalRequest, OfferedAnswer } from '#specs/protocol/approval.ts'
import { formatCount } from '../../files/format.ts'
import type { Colors } from './colors.ts'
import { parseObject } from './json-lines.ts'
import { sanitizeLine, sanitizeRows } from './sanitize.ts'

export type Question = Omit<ApprovalRequest, 'runId'> & {
  /** Of a question of the host's own about network access. */
  readonly access?: AccessQuestion
  /** Whether it is the host's own words, about what the host itself would do. */
  readonly isOfHost?: boolean
  /** Why rules leave it to a person, in the host's words. */
  readonly because?: string
  /** What it accepts. */
  readonly answers?: readonly OfferedAnswer[]
}

/** Rows of arguments and of the preview that come with the question. */
const argumentsMaxRows = 40
const previewMaxRows = 60

const argumentsMargin = '  │ '
const previewMargin = '  ┆ '
const becauseMargin = '  · '
/** The end of a part that continues; the answer of that name shows the rest. */
export const seeAllLabel = 'show everything first'

/**
 * The question as it is put first.
 * @param width cells of the terminal's rows
 * @returns `isCut`: some of it is not shown
 */
export function questionLines(
  request: Question,
  colors: Colors,
  width: number,
): { readonly lines: string[]; readonly isCut: boolean } {
  const { agentPath, stepId, tool, preview, because, parentCallId, isOfHost = false } = request
  const program = parentCallId === undefined ? '' : ', called by a program'
  const cut = (rows: readonly string[], maxRows: number, margin: string) =>
    rows.length <= maxRows
      ? rows
      : [
          ...rows.slice(0, maxRows),
          colors.yellow(
            `${margin}… ${formatCount(rows.length - maxRows, 'more line')}: choose “${seeAllLabel}”`,
          ),
        ]
  const argumentRows = rowsOfArguments(request, width)
  const previewRows = sanitizeRows(preview, previewMargin, width)
  const lines = [
    '',
    colors.bold(
      isOfHost
        ? `Approval: Caisson itself asks to run ${sanitizeLine(tool, 60)}`
        : `Approval: the agent asks to call ${sanitizeLine(tool, 60)}`,
    ),
    colors.dim(`  asked by ${sanitizeLine(agentPath, 300)}, step ${sanitizeLine(stepId, 64)}${program}`),
    ...(because === undefined ? [] : sanitizeRows(because, becauseMargin, width)),
    ...cut(argumentRows, argumentsMaxRows, argumentsMargin),
    ...(preview === ''
      ? []
      : [colors.dim(previewLabel(request)), ...cut(previewRows, previewMaxRows, previewMargin)]),
  ]
  return { lines, isCut: argumentRows.length > argumentsMaxRows || previewRows.length > previewMaxRows }
}

/** All of the question. */
export function wholeQuestion(request: Question, colors: Colors, width: number): string[] {
  const { preview } = request
  return [
    ...rowsOfArguments(request, width),
    ...(preview === ''
      ? []
      : [colors.dim(previewLabel(request)), ...sanitizeRows(preview, previewMargin, width)]),
  ]
}

function previewLabel({ isOfHost = false }: Question): string {
  return isOfHost ? '  details:' : '  preview:'
}

/** `name: value` each, with a mark where the model did not give it; of a text of several lines all lines below its name. */
function rowsOfArguments({ arguments: json, defaults = [] }: Question, width: number): string[] {
  const given = parseObject(json)
  if (given === null) return sanitizeRows(json, argumentsMargin, width)
  return Object.entries(given).flatMap(([key, value]) => {
    const name = plainName(key) + (defaults.includes(key) ? ' (by default)' : '')
    const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? '')
    return text.includes('\n')
      ? [
          ...sanitizeRows(`${name}:`, argumentsMargin, width),
          ...sanitizeRows(text, `${argumentsMargin}  `, width),
        ]
      : sanitizeRows(`${name}: ${text}`, argumentsMargin, width)
  })
}

/** Names with anything but letters in quotes: one that holds `: ` or a line break could pass for two arguments. */
function plainName(name: string): string {
  return /^\w+$/.test(name) ? name : JSON.stringify(name)
}
