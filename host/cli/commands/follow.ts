/** Follows a run in this terminal or as JSON lines, whether this process carries it out or another, and puts its questions. */
import { errorMessage } from '#specs/errors.ts'
import { findRevisionProblems } from '#specs/protocol/plan-revision.ts'
import type { ApprovalAnswer } from '../../approvals/queue.ts'
import type { RunHandle } from '../../control/run-handle.ts'
import type { FeedItem } from '../../journal/run-feed.ts'
import type { TellLater } from '../desktop-notices.ts'
import { type Io, userName } from '../io.ts'
import { promptApproval } from '../prompts/approval-prompt.ts'
import { findEditor } from '../prompts/plan-editor.ts'
import { SteeringPrompt } from '../prompts/steering-prompt.ts'
import type { SettleIo } from '../prompts/terminal-input.ts'
import { type JsonInput, readJsonLines, writeJsonLine } from '../render/json-lines.ts'
import type { ProgressView } from '../render/progress.ts'
import { sanitizeLine } from '../render/sanitize.ts'

/** A run as it is followed. */
export interface FollowedRun extends RunHandle {
  /** Whether an approval waits for an answer. */
  hasPendingApproval(approvalId: string): boolean
  /** Number of approvals that wait for an answer. */
  readonly pendingCount: number
  /** Resolves when it does not any more, whoever answered. */
  whenResolved(approvalId: string): Promise<void>
}

/** What interrupts the following from outside. */
export interface FollowInterruption {
  /** Aborted at the first interruption, so that an open question is withdrawn. */
  readonly signal: AbortSignal
  /** The person interrupts at a prompt, where Ctrl-C is a key. */
  interrupt(by: string): void
}

interface FollowOptions {
  /** Whether somebody is at the terminal, to be asked and to say something. */
  readonly isInteractive: boolean
  /** Whether what is typed becomes a message to the agent; absent: yes. Keys are taken either way, so that none is echoed. */
  readonly takesMessages?: boolean
  /** The run's own folder, for what is edited. */
  readonly folder: string
  /** Tells the person of a question elsewhere, too. */
  readonly tellLater?: TellLater | undefined
  /** Time without a key before an answer counts; absent: a second. */
  readonly quietMs?: number
}

export async function follow(
  io: Io,
  view: ProgressView,
  run: FollowedRun,
  interrupts: FollowInterruption,
  { isInteractive, takesMessages = true, folder, tellLater, ...quiet }: FollowOptions,
): Promise<void> {
  if (!isInteractive) {
    for await (const item of run.watch()) view.show(item)
    return
  }
  /** What came while the person was writing. */
  const held: FeedItem[] = []
  const release = (): void => {
    for (let item = held[0]; item !== undefined && openQuestion(run, item) === undefined; item = held[0]) {
      view.show(item)
      held.shift()
    }
  }
  using talk = new SteeringPrompt(io, view, run, release, quiet)
  if (!takesMessages) talk.end()
  for await (const item of run.watch()) {
    held.push(item)
    if (item.source === 'host') tellTalk(talk, item.event.type)
    const isUrgent = openQuestion(run, item) !== undefined || isEnd(item)
    if (talk.isOpen && isUrgent) await talk.withdraw()
    if (talk.isOpen) continue
    release()
    const asked = openQuestion(run, item)
    if (asked === undefined) continue
    held.length = 0
    view.show(item, true)
    talk.mute()
    if (run.pendingCount > 1)
      view.lines([`${run.pendingCount} questions wait for an answer; the oldest of them:`])
    const keepTyped = (keys: string) => talk.keep(keys)
    using _ = tellLater?.(
      'access' in asked ? asked.access.address : (asked.question?.question ?? asked.preview),
    )
    await putQuestion(io, view, run, interrupts, asked, folder, { keepTyped, ...quiet })
    talk.listen()
  }
  await talk.withdraw()
  if (talk.unsent !== '') view.lines([`Not sent, because the run ended: “${sanitizeLine(talk.unsent)}”`])
}

/** @param onInputEnd called when nobody can answer any more */
export async function followAsJson(io: Io, run: FollowedRun, onInputEnd: () => void): Promise<void> {
  const stop = readJsonLines(io.stdin, {
    onInput: (input) => void obey(io, run, input),
    onProblem: (message) => io.stderr.write(`${sanitizeLine(message, 1_000)}\n`),
    onEnd: onInputEnd,
  })
  try {
    for await (const item of run.watch()) await writeJsonLine(io.stdout, item)
  } finally {
    stop()
  }
}

/** Never rejects. */
async function obey(io: Io, run: FollowedRun, input: JsonInput): Promise<void> {
  const by = 'standard input'
  try {
    if ('cancel' in input) await run.cancel({ by })
    else if ('approvalId' in input) {
      const { approvalId } = input
      const result = await run.answer(approvalId, answerOf(input), { by, via: 'stdin' })
      if (!result.taken) io.stderr.write(`${sanitizeLine(result.message, 1_000)}\n`)
    } else if ('cancelAgent' in input) {
      const { cancelAgent, reason } = input
      await run.cancelAgent(cancelAgent, { by, ...(reason === undefined ? {} : { reason }) })
    } else if ('steer' in input) {
      const { steer, to } = input
      await run.steer(steer, { by, ...(to === undefined ? {} : { to }) })
    } else if ('revoke' in input) await run.revokeAnswer(input.revoke, { by })
    else await (input.pause ? run.pause({ by }) : run.resume({ by }))
  } catch (error) {
    io.stderr.write(`not done: ${sanitizeLine(errorMessage(error), 1_000)}\n`)
  }
}

function answerOf(input: Extract<JsonInput, { approvalId: string }>): ApprovalAnswer {
  const hint = input.hint === undefined ? {} : { hint: input.hint }
  if ('answer' in input) return { decision: 'allow', scope: 'once', answer: input.answer, ...hint }
  const { decision, scope, reach, forMs, plan } = input
  return {
    decision,
    scope,
    ...hint,
    ...(reach === undefined ? {} : { reach }),
    ...(forMs === undefined ? {} : { forMs }),
    ...(plan === undefined ? {} : { plan }),
  }
}

function tellTalk(talk: SteeringPrompt, type: string): void {
  if (type === 'cancel-request') talk.end()
  if (type === 'pause-request') talk.setPausing(true)
  if (type === 'resume-request') talk.setPausing(false)
}

function isEnd(item: FeedItem): boolean {
  return item.source === 'host' && item.event.type === 'run-end'
}

/** The question that an item asks and that still waits: rules and modes answer at once. */
function openQuestion(run: FollowedRun, item: FeedItem) {
  if (item.source !== 'host' || item.event.type !== 'approval-request') return undefined
  const { request, access, kind, because, answers } = item.event
  if (!run.hasPendingApproval(request.approvalId)) return undefined
  if (access !== undefined) return { ...request, access }
  return {
    ...request,
    ...(kind === 'enforced' ? { isOfHost: true } : {}),
    ...(because === undefined ? {} : { because }),
    ...(answers === undefined ? {} : { answers }),
  }
}

async function putQuestion(
  io: Io,
  view: ProgressView,
  run: FollowedRun,
  interrupts: FollowInterruption,
  request: Parameters<typeof promptApproval>[0],
  folder: string,
  settling: Pick<SettleIo, 'keepTyped' | 'quietMs'>,
): Promise<void> {
  view.pause()
  // Whatever else answers it, a withdrawal or the end of the run, clears it; the feed then says what it was.
  const settled = new AbortController()
  void run.whenResolved(request.approvalId).then(() => settled.abort())
  const signal = AbortSignal.any([settled.signal, interrupts.signal])
  const edit = await findEditor(io, folder)
  const { plan: current, steps } = view.state
  const answer = await promptApproval(request, {
    input: io.stdin,
    output: io.stdout,
    signal,
    ...settling,
    current,
    findPlanProblems: (next) => (current === null ? [] : findRevisionProblems(current, next, steps)),
    ...(edit === undefined ? {} : { edit }),
  })
  const result =
    answer === null
      ? undefined
      : await run.answer(request.approvalId, answer, { by: userName(), via: 'terminal' })
  if (answer === null && !signal.aborted) interrupts.interrupt('the person at the terminal')
  view.resume()
  // Nobody took it, and the question still waits.
  if (
    result?.taken !== false ||
    result.reason !== 'connection_lost' ||
    !run.hasPendingApproval(request.approvalId)
  )
    return
  view.lines([`Not answered: ${sanitizeLine(result.message, 1_000)}`])
  await putQuestion(io, view, run, interrupts, request, folder, settling)
}
