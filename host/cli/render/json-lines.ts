/**
 * `--json`: one JSON object a line on stdout; answers, messages and requests as JSON lines on stdin. JSON shown to a person holds
 * nothing that a terminal or an editor interprets.
 */
import { createInterface } from 'node:readline'
import type { Readable, Writable } from 'node:stream'
import { z } from 'zod'
import { AnswerDuration, AnswerReach, ApprovalScope } from '#specs/protocol/approval.ts'
import { describeIssues, plainMessages } from '#specs/protocol/issue-text.ts'
import { limits } from '#specs/protocol/limits.ts'
import { Plan } from '#specs/protocol/plan.ts'
import { UserAnswer } from '#specs/protocol/question.ts'
import { Id, Line, Text } from '#specs/protocol/text.ts'
import { parseJson } from '../../files/json.ts'

/** One line on stdin. */
export const JsonInput = z.union([
  z.strictObject({
    approvalId: Id,
    decision: z.enum(['allow', 'deny']),
    scope: ApprovalScope.default('once'),
    reach: AnswerReach.optional(),
    forMs: AnswerDuration.optional(),
    hint: Text.optional(),
    plan: Plan.optional(),
  }),
  z.strictObject({
    type: z.literal('answer').optional(),
    approvalId: Id,
    /** To a question of `ask_user`. */
    answer: UserAnswer,
    /** A word with it. */
    hint: Text.optional(),
  }),
  z.strictObject({
    steer: Text.min(1),
    /** Path of a sub-agent; absent: the root agent. */
    to: Line.optional(),
  }),
  z.strictObject({ cancelAgent: Line.min(1), reason: Text.optional() }),
  /** An answer for the run, by its approval. */
  z.strictObject({ revoke: Id }),
  z.strictObject({ pause: z.boolean() }),
  z.strictObject({ cancel: z.literal(true) }),
])
export type JsonInput = z.infer<typeof JsonInput>

/** One line of plain JSON that means the same and that a terminal shows as it is. */
export function toJsonLine(value: unknown): string {
  return `${escapeUnsafe(JSON.stringify(value))}\n`
}

/** Writes one object; waits while the reader is slow, and not at all once it is gone. */
export async function writeJsonLine(out: Writable, value: unknown): Promise<void> {
  if (isGone(out) || out.write(toJsonLine(value)) || isGone(out)) return
  await new Promise<void>((resolve) => {
    const go = () => {
      for (const event of writable) out.off(event, go)
      resolve()
    }
    for (const event of writable) out.on(event, go)
  })
}

/** After each of these there is nothing to wait for. */
const writable = ['drain', 'error', 'close'] as const

function isGone(out: Writable): boolean {
  return out.destroyed || out.errored !== null
}

/**
 * Calls `onInput` for every valid line until the stream ends; a bad line calls `onProblem` and changes nothing.
 * @returns a function that stops listening
 */
export function readJsonLines(
  input: Readable,
  handlers: { onInput: (value: JsonInput) => void; onProblem: (message: string) => void; onEnd: () => void },
): () => void {
  const lines = createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY })
  let number = 0
  lines.on('line', (line) => {
    number += 1
    if (line.trim() === '') return
    const parsed =
      line.length > limits.frameMaxBytes ? undefined : JsonInput.safeParse(parseJson(line), plainMessages)
    if (parsed?.success) handlers.onInput(parsed.data)
    else {
      const issue = parsed === undefined ? 'too long' : describeIssues(parsed.error, { root: 'it', max: 1 })
      handlers.onProblem(
        `line ${number} of standard input is not an answer or a request (${issue}); expected {"approvalId","decision","scope"?,"reach"?,"forMs"?,"hint"?,"plan"?}, {"type":"answer","approvalId","answer","hint"?}, {"steer":"TEXT","to"?}, {"cancelAgent":"PATH","reason"?}, {"revoke":"APPROVAL"}, {"pause":true|false} or {"cancel":true}`,
      )
    }
  })
  lines.on('close', handlers.onEnd)
  return () => {
    lines.off('close', handlers.onEnd)
    lines.close()
  }
}

/** What a terminal may obey or hide (C1 controls, bidi, zero-width): JSON leaves it as it is. */
const unsafe = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu
/** What editors take for settings of theirs, also in the middle of a file's first and last lines. */
const editorSettings = /(\b(?:vim?|Vim|ex)[<=>]?\d*|Local Variables|-\*)(:|-)/g

/** @param json without line breaks between its tokens */
function escapeUnsafe(json: string): string {
  return json.replace(unsafe, (found) => found.split('').map(toEscape).join(''))
}

/** Indented, for a person to change in an editor. */
export function toPlainJson(value: unknown): string {
  const lines = JSON.stringify(value, null, 2).split('\n').map(escapeUnsafe)
  return `${lines.map((line) => line.replace(editorSettings, breakSetting)).join('\n')}\n`
}

function breakSetting(_: string, word: string, sign: string): string {
  return `${word}${toEscape(sign)}`
}

function toEscape(unit: string): string {
  return `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`
}

/** The object that `json` holds; null for anything else. */
export function parseObject(json: string): object | null {
  const value = parseJson(json)
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : null
}
