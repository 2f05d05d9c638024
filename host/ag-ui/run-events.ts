/**
 * The events of a run as AG-UI events. IDs are made of the journal alone, so that the same run told again has the same ones.
 * The first part can be muted: the state is kept, and nothing is sent that an earlier request was answered with.
 */
import { type Event, EventType, type TokenUsage } from '@ag-ui/core'
import type { ServiceEvent } from '../../client/index.ts'
import { type AgentEvent, type HostEvent, initialRunState, type RunState, reduceRun } from '../index.ts'
import type { KnownMessages } from './known-messages.ts'
import { OpenWork } from './open-work.ts'
import { patchOf, sharedState } from './shared-state.ts'
import { TextStreams } from './text-streams.ts'

type Of<T> = Extract<AgentEvent | HostEvent, { type: T }>
type Line = Exclude<ServiceEvent, { source: 'delta' }>
type DeltaOf = Extract<ServiceEvent, { source: 'delta' }>
/** One of our own: `caisson.run`, `caisson.prepare`, `caisson.note`, `caisson.question` or `caisson.decision`. */
type CustomName = 'run' | 'prepare' | 'note' | 'question' | 'decision'

/** Calls of turns and calls under way: an agent may make them without end. */
const callsMax = 1_024
const briefMaxChars = 1_000

export interface RunEventsOptions {
  readonly runId: string
  readonly known: KnownMessages
  /** Approvals that the front end was asked about: what was before the last of them is muted. */
  readonly seen: ReadonlySet<string>
  /** State of the front end, which stays beside ours. */
  readonly state: unknown
}

export class RunEvents {
  readonly #options: RunEventsOptions
  readonly #texts: TextStreams
  readonly #open = new OpenWork()
  /** Approvals still to come before anything is sent. */
  readonly #awaited: Set<string>
  /** IDs of calls, by agent and call. */
  readonly #calls = new Map<string, string>()
  /** The message whose turn asked for a call, by call of the root agent. */
  readonly #parents = new Map<string, string>()
  #state: RunState = initialRunState
  #shared = sharedState('', initialRunState)
  #said = ''

  constructor(options: RunEventsOptions) {
    this.#options = options
    this.#texts = new TextStreams(options.known)
    this.#awaited = new Set(options.seen)
    this.#shared = sharedState(options.runId, initialRunState)
  }

  get state(): RunState {
    return this.#state
  }

  get isMuted(): boolean {
    return this.#awaited.size > 0
  }

  /** ID of the call that a question is about; undefined where it was not shown. */
  toolCallOf(agentPath: string, callId: string): string | undefined {
    return this.#calls.get(`${agentPath} ${callId}`)
  }

  /** Before all others, but the start of the request. */
  begin(): Event[] {
    return this.isMuted ? [] : [this.#snapshot(), this.#custom('run', { runId: this.#options.runId })]
  }

  of(item: ServiceEvent): Event[] {
    if (item.source === 'delta') return this.isMuted ? [] : this.#ofDelta(item)
    this.#state = reduceRun(this.#state, item)
    const wasMuted = this.isMuted
    const events =
      item.source === 'host'
        ? this.#ofHost(item, item.event)
        : this.#ofAgent(item, item.agentPath, item.event)
    if (item.source === 'host' && item.event.type === 'approval-request')
      this.#awaited.delete(item.event.request.approvalId)
    if (wasMuted) return this.isMuted ? [] : [...this.begin(), ...this.#open.reopen()]
    return [...events.map((event) => ({ ...event, timestamp: item.at })), ...this.#stateDelta()]
  }

  /** Closes what is open. @param isAsking whether the run waits and continues with a later request */
  end(isAsking: boolean): Event[] {
    return [...this.#texts.closeAll(), ...this.#open.closeAll(isAsking)]
  }

  /** Of the whole run, as the gateway counted it. */
  usage(model: string): TokenUsage[] {
    const { inputTokens, outputTokens, reasoningTokens } = this.#state.usage
    return [{ model, inputTokens, outputTokens, totalTokens: inputTokens + outputTokens, reasoningTokens }]
  }

  #ofHost({ seq }: Line, event: HostEvent): Event[] {
    switch (event.type) {
      case 'approval-request':
        return event.access === undefined ? this.#asked(seq, event) : []
      case 'approval-decision': {
        const { approvalId, decision, by, name = null } = event
        return [this.#custom('decision', { approvalId, decision, by, name })]
      }
      case 'run-resume':
        return [this.#custom('note', { level: 'info', text: `The run continues: ${event.message}` })]
      case 'run-end':
        return this.#say(event.summary)
      default:
        return []
    }
  }

  #ofAgent({ seq }: Line, agentPath: string, event: AgentEvent): Event[] {
    const isRoot = agentPath === 'root'
    switch (event.type) {
      case 'turn-end':
        return isRoot ? this.#turnEnded(event) : []
      case 'step-start':
        return isRoot ? this.#open.startStep(event.stepId, this.#titleOf(event.stepId)) : []
      case 'step-end':
        return isRoot ? this.#stepEnded(event) : []
      case 'tool-start':
        return this.#callStarted(seq, agentPath, event)
      case 'tool-end':
        return this.#callEnded(agentPath, event)
      case 'agent-start': {
        const { runId } = this.#options
        const description = event.brief.slice(0, briefMaxChars).toWellFormed()
        return this.#open.startAgent(agentPath, `${runId}/${seq}`, description)
      }
      case 'agent-end':
        return this.#open.endAgent(agentPath, event.state, event.text)
      case 'note':
        return [this.#custom('note', { level: event.level, text: event.text })]
      default:
        return []
    }
  }

  #ofDelta({ agentPath, delta }: DeltaOf): Event[] {
    if (delta.type === 'prepare') return [this.#custom('prepare', delta)]
    // A planner's text is often its plan, which is part of the state.
    if (agentPath !== 'root' || !('stepId' in delta) || delta.stepId === 'plan') return []
    if (delta.type === 'turn-reset') {
      this.#texts.void(this.#textId(delta))
      this.#texts.void(this.#reasoningId(delta))
      return []
    }
    if (delta.type === 'text-delta')
      return this.#texts.add('text', this.#textId(delta), delta.offset, delta.text)
    if (delta.type === 'reasoning-delta')
      return this.#texts.add('reasoning', this.#reasoningId(delta), delta.offset, delta.text)
    return []
  }

  #turnEnded(event: Of<'turn-end'>): Event[] {
    const { text, reasoning = '', calls, stepId } = event
    const isPlan =
      stepId === 'plan' && (calls.length === 0 || calls.some(({ tool }) => tool === 'submit_plan'))
    if (isPlan) return []
    if (text.trim() !== '') {
      this.#said = text.trim()
      for (const { callId } of calls) keepBounded(this.#parents, callId, this.#textId(event))
    }
    if (this.isMuted) return []
    return [
      ...this.#texts.end('reasoning', this.#reasoningId(event), reasoning),
      ...this.#texts.end('text', this.#textId(event), text),
    ]
  }

  #stepEnded({ stepId, state, text }: Of<'step-end'>): Event[] {
    return [...(state === 'completed' ? this.#say(text) : []), ...this.#open.endStep(stepId)]
  }

  /** A text once: of a step it is often that of its last turn, and of a run that of its last step. */
  #say(text: string): Event[] {
    const said = text.trim()
    if (said === '' || said === this.#said) return []
    this.#said = said
    return this.isMuted ? [] : this.#texts.end('text', `${this.#options.runId}/answer`, said)
  }

  /** The call that is asked about, which has not started. */
  #asked(seq: number, { request: { agentPath, callId, tool, arguments: given } }: Of<'approval-request'>) {
    if (this.toolCallOf(agentPath, callId) !== undefined) return []
    return this.#showCall(seq, { agentPath, callId, tool, given })
  }

  #callStarted(seq: number, agentPath: string, { callId, tool, arguments: given }: Of<'tool-start'>) {
    if (this.toolCallOf(agentPath, callId) !== undefined) return []
    return this.#showCall(seq, { agentPath, callId, tool, given })
  }

  #showCall(
    seq: number,
    { agentPath, callId, tool, given }: Readonly<Record<'agentPath' | 'callId' | 'tool' | 'given', string>>,
  ): Event[] {
    const toolCallId = `${this.#options.runId}/${seq}`
    keepBounded(this.#calls, `${agentPath} ${callId}`, toolCallId)
    if (this.#options.known.hasCall(toolCallId)) return []
    const parent = agentPath === 'root' ? this.#parents.get(callId) : undefined
    const from = this.#open.attributionOf(agentPath)
    return [
      {
        ...{ type: EventType.TOOL_CALL_START, toolCallId, toolCallName: tool, ...from },
        ...(parent === undefined ? {} : { parentMessageId: parent }),
      },
      { type: EventType.TOOL_CALL_ARGS, toolCallId, delta: given, ...from },
      { type: EventType.TOOL_CALL_END, toolCallId, ...from },
    ]
  }

  #callEnded(agentPath: string, { callId, output, error }: Of<'tool-end'>): Event[] {
    const key = `${agentPath} ${callId}`
    const toolCallId = this.#calls.get(key)
    this.#calls.delete(key)
    this.#parents.delete(callId)
    if (toolCallId === undefined || this.#options.known.hasResult(toolCallId)) return []
    const content = error === undefined ? output : `${error.code}: ${error.message}`
    const messageId = `${toolCallId}/result`
    const from = this.#open.attributionOf(agentPath)
    return [{ type: EventType.TOOL_CALL_RESULT, messageId, toolCallId, content, role: 'tool', ...from }]
  }

  #stateDelta(): Event[] {
    const before = this.#shared
    this.#shared = sharedState(this.#options.runId, this.#state)
    const delta = patchOf(before, this.#shared, '/caisson')
    return delta.length === 0 ? [] : [{ type: EventType.STATE_DELTA, delta }]
  }

  /** With what the front end keeps in its state. */
  #snapshot(): Event {
    const { state, runId } = this.#options
    this.#shared = sharedState(runId, this.#state)
    const others = typeof state === 'object' && state !== null && !Array.isArray(state) ? state : {}
    return { type: EventType.STATE_SNAPSHOT, snapshot: { ...others, caisson: this.#shared } }
  }

  #custom(name: CustomName, value: unknown): Event {
    return { type: EventType.CUSTOM, name: `caisson.${name}`, value }
  }

  /** A question that this caller cannot answer. */
  waitsElsewhere(value: unknown): Event {
    return this.#custom('question', value)
  }

  #titleOf(stepId: string): string {
    return this.#state.plan?.steps.find(({ id }) => id === stepId)?.title ?? stepId
  }

  /** A step that is done again after a loss has messages of its own. */
  #textId({ stepId, turn }: { readonly stepId: string; readonly turn: number }): string {
    return `${this.#options.runId}/${this.#state.epoch}/${stepId}/${turn}`
  }

  #reasoningId(turn: { readonly stepId: string; readonly turn: number }): string {
    return `${this.#textId(turn)}/reasoning`
  }
}

function keepBounded(map: Map<string, string>, key: string, value: string): void {
  const [oldest] = map.keys()
  if (map.size >= callsMax && oldest !== undefined) map.delete(oldest)
  map.set(key, value)
}
