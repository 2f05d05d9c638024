/**
 * The lines of a journal that count for a replay: without what was lost with an agent and done again, and without what a
 * person did after the run. Names each call by its place, as a replay may draw another id for it.
 */
import type { JournalEvent } from '#specs/protocol/event.ts'

export interface PastLines {
  readonly lines: readonly JournalEvent[]
  /** Name of a call by its id: agent, step, turn and position in the turn. */
  readonly callNames: ReadonlyMap<string, string>
  /** Whether something outside of the run ended it: then a replay continues behind its last line. */
  readonly isCutOff: boolean
}

/** Ends that nothing inside of the run causes. */
const outerReasons: ReadonlySet<string> = new Set(['cancelled', 'limit_time', 'agent_lost', 'vm_lost'])
/** What an agent that continues a run does again after a checkpoint. */
const doneAgain: ReadonlySet<string> = new Set(['approval-request', 'hook-end'])

export function readPastLines(journal: readonly JournalEvent[]): PastLines {
  const end = journal.findIndex(({ event }) => event.type === 'run-end')
  const inRun = end < 0 ? journal : journal.slice(0, end + 1)
  const lines = withoutLost(inRun)
  const last = lines.at(-1)?.event
  const stop = lines.findIndex(
    ({ event }) => event.type === 'cancel-request' || event.type === 'agent-cancel-request',
  )
  const isCutOff = stop >= 0 || last?.type !== 'run-end' || outerReasons.has(last.reason)
  return {
    lines: isCutOff ? lines.slice(0, stop < 0 ? lines.length - (end < 0 ? 0 : 1) : stop) : lines,
    callNames: nameCalls(lines),
    isCutOff,
  }
}

/** Without the lines that another agent had to do again. */
function withoutLost(journal: readonly JournalEvent[]): JournalEvent[] {
  let kept: JournalEvent[] = []
  for (const line of journal) {
    const { event } = line
    if (event.type === 'run-resume') {
      const at = kept.findLastIndex(
        ({ event: one }) => one.type === 'checkpoint' && one.checkpointId === event.checkpointId,
      )
      const decided = new Set(
        kept.flatMap(({ event: one }) => (one.type === 'approval-decision' ? [one.approvalId] : [])),
      )
      kept = kept.filter((one, index) => index <= at || isKept(one, decided))
    } else kept.push(line)
  }
  return kept
}

/** Whether a line after the checkpoint stands: what was decided and what left the VM is not done again. */
function isKept({ source, event }: JournalEvent, decided: ReadonlySet<string>): boolean {
  if (source === 'agent') return false
  if (event.type === 'approval-request') return decided.has(event.request.approvalId)
  return !doneAgain.has(event.type)
}

function nameCalls(lines: readonly JournalEvent[]): Map<string, string> {
  const names = new Map<string, string>()
  const taken = new Map<string, number>()
  for (const { event, ...line } of lines) {
    if (line.source !== 'agent') continue
    if (event.type === 'tool-start') nameProgramCall(names, event)
    if (event.type !== 'turn-end') continue
    for (const [index, { callId }] of event.calls.entries()) {
      const name = `${line.agentPath} ${event.stepId} turn ${event.turn} call ${index + 1}`
      const count = (taken.get(name) ?? 0) + 1
      taken.set(name, count)
      // A step that is tried again counts its turns anew.
      names.set(callId, count === 1 ? name : `${name} try ${count}`)
    }
  }
  return names
}

/** By the call of its program, and what the agent made its id of: what is called, with which arguments. */
function nameProgramCall(
  names: Map<string, string>,
  { callId, parentCallId }: { readonly callId: string; readonly parentCallId?: string | undefined },
): void {
  const parent = parentCallId === undefined ? undefined : names.get(parentCallId)
  if (parent === undefined || parentCallId === undefined) return
  const own = callId.startsWith(`${parentCallId}.`) ? callId.slice(parentCallId.length + 1) : callId
  names.set(callId, `${parent} program ${own}`)
}
