/** Follows a run in this terminal or as JSON lines, whether this process carries it out or another, and puts its questions. */
import type { ApprovalAnswer } from '../approvals/queue.ts'
import type { FeedItem } from '../runs/feed.ts'
import { promptApproval } from '../ui/approval-prompt.ts'
import type { ProgressView } from '../ui/progress.ts'
import type { Io } from './io.ts'
import { readJsonLines, writeJsonLine } from './json-lines.ts'

/** A run as it is followed. */
export interface FollowedRun {
  watch(): AsyncIterableIterator<FeedItem>
  /** Whether an approval waits for an answer. */
  waitsFor(approvalId: string): boolean
  /** Resolves when it does not any more, whoever answered. */
  settled(approvalId: string): Promise<void>
  /** Whether the answer decided. */
  answer(approvalId: string, answer: ApprovalAnswer): boolean | Promise<boolean>
  cancel(by: string): void
}

/** What interrupts the following from outside. */
export interface Interruption {
  /** Aborted at the first interruption, so that an open question is withdrawn. */
  readonly signal: AbortSignal
  /** The person interrupts at a prompt, where Ctrl-C is a key. */
  interrupt(by: string): void
}

/** @param isAttended whether somebody is at the terminal to be asked */
export async function follow(
  io: Io,
  view: ProgressView,
  run: FollowedRun,
  interrupts: Interruption,
  isAttended = true,
): Promise<void> {
  for await (const item of run.watch()) {
    const asked = isAttended ? openQuestion(run, item) : undefined
    view.show(item, asked !== undefined)
    if (asked !== undefined) await putQuestion(io, view, run, interrupts, asked)
  }
}

/** @param onInputEnd called when nobody can answer any more */
export async function followAsJson(io: Io, run: FollowedRun, onInputEnd: () => void): Promise<void> {
  const answer = async (approvalId: string, given: ApprovalAnswer): Promise<void> => {
    if (!(await run.answer(approvalId, given)))
      io.stderr.write(`approval ${approvalId} does not wait for an answer, or not for this one\n`)
  }
  const stop = readJsonLines(io.stdin, {
    onInput: (input) => {
      if ('cancel' in input) run.cancel('standard input')
      else {
        const { approvalId, decision, scope, reach, hint } = input
        void answer(approvalId, {
          decision,
          scope,
          ...(reach === undefined ? {} : { reach }),
          ...(hint === undefined ? {} : { hint }),
        })
      }
    },
    onProblem: (message) => io.stderr.write(`${message}\n`),
    onEnd: onInputEnd,
  })
  try {
    for await (const item of run.watch()) await writeJsonLine(io.stdout, item)
  } finally {
    stop()
  }
}

/** The question that an item asks and that still waits: rules and modes answer at once. */
function openQuestion(run: FollowedRun, item: FeedItem) {
  if (item.source !== 'host' || item.event.type !== 'approval-request') return undefined
  const { request, access } = item.event
  if (!run.waitsFor(request.approvalId)) return undefined
  return access === undefined ? request : { ...request, access }
}

async function putQuestion(
  io: Io,
  view: ProgressView,
  run: FollowedRun,
  interrupts: Interruption,
  request: Parameters<typeof promptApproval>[0],
): Promise<void> {
  view.pause()
  // Whatever else answers it, a withdrawal or the end of the run, clears it; the feed then says what it was.
  const settled = new AbortController()
  void run.settled(request.approvalId).then(() => settled.abort())
  const signal = AbortSignal.any([settled.signal, interrupts.signal])
  const answer = await promptApproval(request, { input: io.stdin, output: io.stdout, signal })
  if (answer !== null) await run.answer(request.approvalId, answer)
  else if (!signal.aborted) interrupts.interrupt('the person at the terminal')
  view.resume()
}
