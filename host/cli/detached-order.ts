/** What starts a background process, and what it replies. Both ends are of one version and one user. */
import * as z from 'zod'
import { CaissonError, type ErrorCode, errorCodes } from '#specs/errors.ts'
import { describeIssues, plainMessages } from '#specs/protocol/issue-text.ts'
import { RunId } from '#specs/protocol/text.ts'
import { parseJson } from '../files/json.ts'
import type { RunOptions } from '../run-options.ts'

/** Descriptor of the reply. */
export const replyFd = 3

const Common = {
  /** `KEY=VALUE` over the configuration. */
  overrides: z.array(z.string()),
  /** File that standard output and standard error go to; the process moves it into the run's folder. */
  log: z.string().min(1),
  /** Whether to apply what is neither flagged nor in conflict when the run has completed. */
  apply: z.boolean(),
}
const Order = z.discriminatedUnion('kind', [
  /** The host checks the options. */
  z.strictObject({ kind: z.literal('run'), options: z.looseObject({ prompt: z.string() }), ...Common }),
  z.strictObject({
    kind: z.literal('resume'),
    runId: RunId,
    takeOver: z.boolean(),
    fromBeginning: z.boolean(),
    ...Common,
  }),
])
export type DetachedOrder =
  | Extract<z.infer<typeof Order>, { kind: 'resume' }>
  | (Omit<Extract<z.infer<typeof Order>, { kind: 'run' }>, 'options'> & { readonly options: RunOptions })

export const DetachedReply = z.discriminatedUnion('ok', [
  z.strictObject({ ok: z.literal(true), runId: RunId }),
  z.strictObject({
    ok: z.literal(false),
    code: z.enum(Object.keys(errorCodes) as [ErrorCode, ...ErrorCode[]]),
    message: z.string(),
  }),
])
export type DetachedReply = z.infer<typeof DetachedReply>

/** @throws {CaissonError} `invalid_options` */
export function readOrder(text: string): DetachedOrder {
  const order = Order.safeParse(parseJson(text), plainMessages)
  if (order.success) return order.data as unknown as DetachedOrder
  const problem = describeIssues(order.error, { root: 'the order', max: 1 })
  throw new CaissonError('invalid_options', `a background process got no order that it can read: ${problem}`)
}
