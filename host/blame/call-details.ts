/** Collects from a run's journal what is behind some of its calls: turn, task, messages, approval and output. */
import type { HostEvent, JournalEvent } from '#specs/protocol/event.ts'
import type { CallRef } from './file-view.ts'
import { keyOf } from './trace-file.ts'

/** A tool call and what led to it. Texts are those of the model, the guest and people; all but `approval` are claims. */
export interface BlamedCall {
  /** Number of its event in the journal. */
  readonly seq: number
  /** When it started, ms since 1970. */
  readonly at: number
  readonly agentPath: string
  readonly stepId: string
  /** Empty when the step is not in the plan. */
  readonly stepTitle: string
  readonly callId: string
  readonly tool: string
  /** Its main argument, such as the command or the path, in one line. */
  readonly summary: string
  /** Canonical JSON of the arguments; the beginning. */
  readonly arguments: string
  /** What the model got back; the beginning. */
  readonly output: string
  /** Absent when it succeeded, or did not end. */
  readonly error?: string
  /** The model's turn that asked for it; absent when the journal has none. */
  readonly turn?: BlamedTurn
  /** The task of the sub-agent that made the call; absent for the run's own agent. */
  readonly brief?: string
  /** Messages of people that the agent saw last before the call, in this step. */
  readonly messages: readonly { readonly text: string; readonly by: string }[]
  /** Absent when nothing was asked. */
  readonly approval?: BlamedApproval
}

export interface BlamedTurn {
  readonly turn: number
  /** What the model wrote and reasoned; the beginning of each. */
  readonly text: string
  readonly reasoning?: string
}

export type BlamedApproval = Pick<
  Extract<HostEvent, { type: 'approval-decision' }>,
  'approvalId' | 'decision' | 'scope' | 'reach' | 'by' | 'name' | 'via' | 'rule' | 'hint' | 'earlierId'
>

/** Characters of each text. */
export const detailMaxChars = 2_000
const summaryMaxChars = 200
const messagesMaxCount = 1_000

type Draft = { -readonly [Key in keyof BlamedCall]: BlamedCall[Key] }

export class CallDetails {
  readonly #wanted: ReadonlyMap<number, CallRef>
  readonly #keys: ReadonlySet<string>
  readonly #found = new Map<number, Draft>()
  /** Calls that started and have not ended. */
  readonly #open = new Map<string, Draft>()
  /** By call, what came before its start. */
  readonly #turns = new Map<string, BlamedTurn>()
  readonly #approvals = new Map<string, BlamedApproval>()
  /** Calls by approval. */
  readonly #asked = new Map<string, string>()
  readonly #messages = new Map<string, { readonly text: string; readonly by: string }>()
  /** By agent and step. */
  readonly #seen = new Map<string, Draft['messages']>()
  readonly #briefs = new Map<string, string>()
  #titles = new Map<string, string>()
  #prompt = ''

  constructor(calls: ReadonlySet<CallRef>) {
    this.#wanted = new Map([...calls].map((call) => [call.startSeq, call]))
    this.#keys = new Set([...calls].map(({ agentPath, callId }) => keyOf(agentPath, callId)))
  }

  /** The run's task. */
  get prompt(): string {
    return this.#prompt
  }

  of({ startSeq }: CallRef): BlamedCall | undefined {
    return this.#found.get(startSeq)
  }

  next(line: JournalEvent): void {
    if (line.source === 'agent') this.#agentEvent(line.agentPath, line)
    else this.#hostEvent(line.event)
  }

  #hostEvent(event: HostEvent): void {
    switch (event.type) {
      case 'run-start':
        this.#prompt = cut(event.prompt)
        break
      case 'steer-request':
        if (this.#messages.size < messagesMaxCount)
          this.#messages.set(event.messageId, { text: cut(event.text), by: event.by })
        break
      case 'approval-request': {
        const key = keyOf(event.request.agentPath, event.request.callId)
        if (this.#keys.has(key)) this.#asked.set(event.request.approvalId, key)
        break
      }
      case 'approval-decision':
        this.#decided(event)
        break
      case 'run-resume':
        this.#open.clear()
        this.#turns.clear()
        this.#approvals.clear()
        this.#asked.clear()
        break
    }
  }

  #agentEvent(agentPath: string, line: JournalEvent): void {
    const { event } = line
    switch (event.type) {
      case 'plan-update':
        if (agentPath === 'root') this.#titles = new Map(event.plan.steps.map(({ id, title }) => [id, title]))
        break
      case 'agent-start':
        this.#briefs.set(agentPath, cut(event.brief))
        break
      case 'steer-seen': {
        const messages = event.messageIds.flatMap((id) => this.#messages.get(id) ?? [])
        this.#seen.set(keyOf(agentPath, event.stepId), messages)
        break
      }
      case 'turn-end':
        for (const { callId } of event.calls) this.#turned(keyOf(agentPath, callId), event)
        break
      case 'tool-start':
        this.#started(agentPath, line.seq, line.at, event)
        break
      case 'tool-end':
        this.#ended(keyOf(agentPath, event.callId), event)
        break
    }
  }

  #turned(
    key: string,
    { turn, text, reasoning }: Extract<JournalEvent['event'], { type: 'turn-end' }>,
  ): void {
    if (!this.#keys.has(key)) return
    const thought = reasoning === undefined ? {} : { reasoning: cut(reasoning) }
    const found: BlamedTurn = { turn, text: cut(text), ...thought }
    const open = this.#open.get(key)
    if (open === undefined) this.#turns.set(key, found)
    else open.turn = found
  }

  #decided(event: Extract<HostEvent, { type: 'approval-decision' }>): void {
    const key = this.#asked.get(event.approvalId)
    if (key === undefined) return
    const { type: _, until: _2, plan: _3, answer: _4, ...approval } = event
    const open = this.#open.get(key)
    if (open === undefined) this.#approvals.set(key, approval)
    else open.approval = approval
  }

  #started(
    agentPath: string,
    seq: number,
    at: number,
    event: Extract<JournalEvent['event'], { type: 'tool-start' }>,
  ): void {
    if (!this.#wanted.has(seq)) return
    const { callId, stepId, tool } = event
    const key = keyOf(agentPath, callId)
    const turn = this.#turns.get(key)
    const approval = this.#approvals.get(key)
    const brief = this.#briefs.get(agentPath)
    const call: Draft = {
      ...{ seq, at, agentPath, stepId, stepTitle: this.#titles.get(stepId) ?? '', callId, tool },
      ...{ summary: summaryOf(event.arguments), arguments: cut(event.arguments), output: '' },
      ...(turn === undefined ? {} : { turn }),
      ...(brief === undefined ? {} : { brief }),
      messages: this.#seen.get(keyOf(agentPath, stepId)) ?? [],
      ...(approval === undefined ? {} : { approval }),
    }
    this.#found.set(seq, call)
    this.#open.set(key, call)
  }

  #ended(key: string, event: Extract<JournalEvent['event'], { type: 'tool-end' }>): void {
    const call = this.#open.get(key)
    this.#open.delete(key)
    this.#turns.delete(key)
    this.#approvals.delete(key)
    if (call === undefined) return
    call.output = cut(event.output)
    if (event.error !== undefined) call.error = cut(event.error.message)
  }
}

/** The command, path or address of a call. */
function summaryOf(argumentsText: string): string {
  const line = (text: string) => text.replaceAll(/\s+/g, ' ').trim().slice(0, summaryMaxChars).toWellFormed()
  try {
    const given = Object(JSON.parse(argumentsText)) as Readonly<Record<string, unknown>>
    const { from, to } = given
    if (typeof from === 'string' && typeof to === 'string') return line(`${from} to ${to}`)
    for (const name of ['command', 'path', 'url', 'query', 'code', 'name']) {
      const value = Object.hasOwn(given, name) ? given[name] : undefined
      if (typeof value === 'string' && value !== '') return line(value)
    }
  } catch {
    // Long arguments are cut in the journal, and then no JSON.
  }
  return line(argumentsText)
}

function cut(text: string): string {
  return text.length <= detailMaxChars ? text : `${text.slice(0, detailMaxChars - 1).toWellFormed()}…`
}
