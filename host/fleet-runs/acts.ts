/**
 * Acts on runs of this host that other hosts ask for, carried out as its own routes do. An act that another host began, and
 * whose outcome is missing, is done if the journal has it: what the journal lacks has had no effect that counts.
 */
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { Line, Text } from '#specs/protocol/text.ts'
import type { ApprovalAnswer } from '../approvals/decisions.ts'
import { ForkFields } from '../control/messages.ts'
import type { RunHandle } from '../control/run-handle.ts'
import type { Act, ActOutcome } from '../fleet/acts.ts'
import type { Fleet } from '../fleet/fleet.ts'
import { readRows } from '../fleet/journal-rows.ts'
import type { Forks } from '../forks/fork-run.ts'
import type { Rewound } from '../forks/rewind.ts'

/** What another host may ask for. Absent: not of this run. */
export type ActedRun = Partial<
  Pick<
    RunHandle,
    'watch' | 'answer' | 'revokeAnswer' | 'steer' | 'cancelAgent' | 'pause' | 'resume' | 'cancel'
  >
>

const Bodies = {
  answer: z.strictObject({
    approvalId: z.string(),
    answer: z.looseObject({ decision: z.string(), scope: z.string() }),
    via: z.enum(['http', 'library', 'control']),
  }),
  revoke: z.strictObject({ approvalId: z.string() }),
  steer: z.strictObject({ text: z.string(), to: z.string().optional() }),
  'cancel-agent': z.strictObject({ agentPath: z.string(), reason: z.string() }),
  pause: z.strictObject({}),
  unpause: z.strictObject({}),
  cancel: z.strictObject({ now: z.boolean() }),
  fork: ForkFields.omit({ by: true, despite: true }),
  rewind: z.strictObject({ to: Line.min(1), prompt: Text.optional(), despiteEffects: z.boolean() }),
} as const
export type ActKind = keyof typeof Bodies
export type ActBody<Kind extends ActKind> = z.infer<(typeof Bodies)[Kind]>
export type RewindBody = ActBody<'rewind'>
const Kind = z.enum(Object.keys(Bodies) as [ActKind, ...ActKind[]])

/** Makes runs of one whose disk this host has. @throws {CaissonError} where it has not */
export interface MakeHere {
  fork(runId: string, request: ActBody<'fork'>, by: string): Promise<Forks>
  rewind(runId: string, options: RewindBody, by: string): Promise<Rewound>
}

export interface ServedActs {
  /** Undefined: the host is about to have it, or has it no more. */
  readonly runOf: (runId: string) => ActedRun | undefined
  /** Absent: this host forks nothing for others. */
  readonly make?: MakeHere | undefined
  readonly warn: (text: string) => void
}

/** Until the host leaves the fleet. */
export async function serveActs(fleet: Fleet, { runOf, make, warn }: ServedActs): Promise<void> {
  const { acts, notices, closing, hostId } = fleet
  while (!closing.aborted) {
    const noticed = notices.wait(hostId, closing)
    try {
      for await (const act of acts.allOpen(hostId)) {
        const run = act.hostId === null ? runOf(act.runId) : { make }
        // Its part has not begun: at the next look.
        if (run !== undefined && (await acts.begin(act.actId, hostId)))
          void carryOut(fleet, act, run).catch((error: unknown) => {
            if (!closing.aborted) warn(`an act on ${act.runId} failed: ${CaissonError.from(error).message}`)
          })
      }
    } catch (error) {
      if (!closing.aborted) warn(`acts of other hosts cannot be read: ${CaissonError.from(error).message}`)
    }
    await noticed
  }
}

async function carryOut(
  fleet: Fleet,
  act: Act,
  run: ActedRun & { readonly make?: MakeHere | undefined },
): Promise<void> {
  let outcome: ActOutcome
  try {
    const before = act.hostId === null ? await doneBefore(fleet, act) : undefined
    const done = before ?? {
      value: (await (act.hostId === null ? perform(run, act) : makeHere(run.make, act))) ?? null,
    }
    outcome = done
  } catch (error) {
    const { code, message, remedy } = CaissonError.from(error)
    // The run leaves this host. Whoever asked withdraws the act then, and asks the next host or writes the journal.
    if (code === 'run_busy' && act.hostId === null) return
    outcome = {
      error: { code, message: withoutRemedy(message, remedy), ...(remedy === undefined ? {} : { remedy }) },
    }
  }
  await fleet.acts.end(act.actId, outcome)
}

/** Who reads it makes an error of both, whose message ends with what to do. */
function withoutRemedy(message: string, remedy: string | undefined): string {
  if (remedy === undefined || !message.endsWith(` ${remedy}`)) return message
  return message.slice(0, -remedy.length - 1).replace(/;$/, '')
}

/** @throws {CaissonError} as the method of the run; `invalid_options` for what no host asks for */
async function perform(run: ActedRun, { kind, body, by }: Act): Promise<unknown> {
  switch (Kind.safeParse(kind).data) {
    case 'answer': {
      const { approvalId, answer, via } = read('answer', body)
      return await run.answer?.(approvalId, answer as unknown as ApprovalAnswer, { by, via })
    }
    case 'revoke':
      return await run.revokeAnswer?.(read('revoke', body).approvalId, { by })
    case 'steer': {
      const { text, to } = read('steer', body)
      return await run.steer?.(text, { by, ...(to === undefined ? {} : { to }) })
    }
    case 'cancel-agent': {
      const { agentPath, reason } = read('cancel-agent', body)
      return await run.cancelAgent?.(agentPath, { by, reason })
    }
    case 'pause':
      return await run.pause?.({ by })
    case 'unpause':
      return await run.resume?.({ by })
    case 'cancel':
      await run.cancel?.({ by, now: read('cancel', body).now })
      return await untilCancelled(run)
    default:
      throw new CaissonError(
        'invalid_options',
        `this host knows no act ${JSON.stringify(kind.slice(0, 100))}`,
      )
  }
}

/** @throws {CaissonError} as the host; `invalid_options` for what no host asks for */
async function makeHere(make: MakeHere | undefined, { runId, kind, body, by: said }: Act): Promise<unknown> {
  const by = Line.safeParse(said).data
  if (by === undefined || (kind !== 'fork' && kind !== 'rewind'))
    throw new CaissonError(
      'invalid_options',
      `this host makes nothing of ${JSON.stringify(kind.slice(0, 100))}`,
    )
  if (make === undefined) throw new CaissonError('not_possible_now', 'this host forks nothing for others')
  if (kind === 'rewind') return await make.rewind(runId, read('rewind', body), by)
  return await make.fork(runId, read('fork', body), by)
}

/** @throws {CaissonError} `run_busy`: the run left this host before it was cancelled */
async function untilCancelled(run: ActedRun): Promise<null> {
  for await (const item of run.watch?.({ deltas: false }) ?? [])
    if (item.source === 'host' && ['cancel-request', 'run-end'].includes(item.event.type)) return null
  throw new CaissonError('run_busy', 'the run left this host before it was cancelled')
}

function read<Of extends ActKind>(kind: Of, body: unknown): ActBody<Of> {
  const { data, success } = Bodies[kind].safeParse(body)
  if (!success) throw new CaissonError('invalid_options', `what another host asked for is no ${kind}`)
  return data as ActBody<Of>
}

async function doneBefore(fleet: Fleet, act: Act): Promise<ActOutcome | undefined> {
  if (act.begunSeq === null) return undefined
  for await (const { event } of readRows(fleet.database, fleet.runs, act.runId))
    if (event.seq > act.begunSeq && isOf(event, act))
      return { value: act.kind === 'answer' ? { taken: true } : null }
  return undefined
}

/** Whether the line says that the act was done. */
export function isOf(
  { event }: JournalEvent,
  { kind, body, by }: Pick<Act, 'kind' | 'body' | 'by'>,
): boolean {
  const { approvalId, text } = z
    .looseObject({ approvalId: z.string().optional(), text: z.string().optional() })
    .parse(body)
  switch (event.type) {
    case 'approval-decision':
      return (
        kind === 'answer' && event.approvalId === approvalId && event.by === 'person' && event.name === by
      )
    case 'approval-revoke':
      return kind === 'revoke' && event.approvalId === approvalId
    case 'steer-request':
      return kind === 'steer' && event.text === text && event.by === by
    case 'agent-cancel-request':
      return kind === 'cancel-agent' && event.by === by
    case 'pause-request':
      return kind === 'pause'
    case 'resume-request':
      return kind === 'unpause'
    case 'cancel-request':
      return kind === 'cancel'
    default:
      return false
  }
}
