/**
 * The events of a run as updates of a session. What the model says streams from deltas, which may be lost; the event at the
 * end of its turn has the whole text and completes what was sent.
 */

import type { PlanEntry, SessionUpdate } from '@agentclientprotocol/sdk'
import type { AgentEvent, Delta, HostEvent, JournalEvent } from '#specs/protocol/event.ts'
import type { CleanText } from '#specs/protocol/shown-text.ts'
import { type FeedItem, initialRunState, type RunState, reduceRun, type StepState } from '../index.ts'
import {
  argumentPaths,
  contentOf,
  fenced,
  kindOf,
  locationsOf,
  readArguments,
  textContent,
  titleOf,
} from './tool-calls.ts'

type Of<T> = Extract<AgentEvent | HostEvent, { type: T }>
type TextDelta = Extract<Delta, { type: 'text-delta' | 'reasoning-delta' }>

interface Place {
  readonly runId: string
  /** The workspace on the host. */
  readonly directory: string
  readonly words: CleanText
}

/** A text under way: which turn, and what of it was sent. */
interface Stream {
  readonly key: string
  sent: string
  /** Whether a part was lost: the rest comes at the end of the turn. */
  isBroken: boolean
}

const rawInputMaxChars = 32_768
/** Calls that have not ended: an agent may start them without end. */
const callsMax = 1_024
const statuses: Readonly<Record<StepState, PlanEntry['status']>> = {
  ...{ pending: 'pending', running: 'in_progress', completed: 'completed' },
  ...{ failed: 'completed', skipped: 'completed', cancelled: 'completed' },
}
const fates: Readonly<Record<string, string>> = {
  failed: '✘ ',
  skipped: '(skipped) ',
  cancelled: '(cancelled) ',
}

export class RunUpdates {
  readonly #place: Place
  /** Ids of calls that have not ended, by agent and call. */
  readonly #calls = new Map<string, string>()
  #streams: Partial<Record<TextDelta['type'], Stream>> = {}
  /** The last text of the agent that was sent whole. */
  #said = ''
  #state: RunState = initialRunState
  #plan = ''

  constructor(place: Place) {
    this.#place = place
  }

  get state(): RunState {
    return this.#state
  }

  /** Id of the call that a question is about; its update comes with the question. */
  callIdOf(agentPath: string, callId: string): string | undefined {
    return this.#calls.get(`${agentPath} ${callId}`)
  }

  of(item: FeedItem): SessionUpdate[] {
    if (item.source === 'delta') return this.#ofDelta(item.agentPath, item.delta)
    this.#state = reduceRun(this.#state, item)
    const updates =
      item.source === 'host'
        ? this.#ofHost(item, item.event)
        : this.#ofAgent(item, item.agentPath, item.event)
    return [...updates, ...this.#planUpdate()]
  }

  #ofHost({ seq }: JournalEvent, event: HostEvent): SessionUpdate[] {
    switch (event.type) {
      case 'approval-request':
        return this.#asked(seq, event)
      case 'approval-decision':
        return []
      case 'run-resume':
        this.#streams = {}
        return [thought(`The run continues: ${event.message}\n\n`)]
      case 'run-end':
        return this.#ended(event)
      default:
        return []
    }
  }

  #ofAgent({ seq }: JournalEvent, agentPath: string, event: AgentEvent): SessionUpdate[] {
    const isRoot = agentPath === 'root'
    switch (event.type) {
      case 'turn-end':
        return isRoot ? [...this.#turnEnded(event), ...this.#usage(event)] : []
      case 'step-end':
        return isRoot && event.state === 'completed' ? this.#say(event.text) : []
      case 'tool-start':
        return this.#callStarted(seq, agentPath, event)
      case 'tool-end':
        return this.#callEnded(agentPath, event)
      case 'agent-start':
        return this.#subAgentStarted(seq, agentPath, event)
      case 'agent-end':
        return this.#subAgentEnded(agentPath, event)
      case 'note':
        return event.level === 'warn' ? [thought(`${event.text}\n\n`)] : []
      default:
        return []
    }
  }

  #ofDelta(agentPath: string, delta: Extract<FeedItem, { source: 'delta' }>['delta']): SessionUpdate[] {
    // A planner's text is often its plan, which is shown as a plan.
    if (agentPath !== 'root' || !('stepId' in delta) || delta.stepId === 'plan') return []
    if (delta.type === 'turn-reset') {
      for (const stream of Object.values(this.#streams))
        if (stream.key === keyOf(delta)) stream.isBroken = true
      return []
    }
    return delta.type === 'text-delta' || delta.type === 'reasoning-delta' ? this.#stream(delta) : []
  }

  /** One text at a time: those of steps side by side would run into each other. */
  #stream(delta: TextDelta): SessionUpdate[] {
    const key = keyOf(delta)
    this.#streams[delta.type] ??= { key, sent: '', isBroken: false }
    const stream = this.#streams[delta.type]
    if (stream === undefined || stream.key !== key || stream.isBroken) return []
    if (delta.offset !== stream.sent.length) {
      stream.isBroken = true
      return []
    }
    stream.sent += delta.text
    return delta.text === '' ? [] : [chunk(delta.type, delta.text, this.#messageId(key))]
  }

  #turnEnded(event: Of<'turn-end'>): SessionUpdate[] {
    const { text, reasoning = '', calls, stepId } = event
    const isPlan =
      stepId === 'plan' && (calls.length === 0 || calls.some(({ tool }) => tool === 'submit_plan'))
    if (isPlan) return []
    const thoughts = this.#complete('reasoning-delta', event, reasoning)
    const said = this.#complete('text-delta', event, text)
    if (text.trim() !== '') this.#said = text.trim()
    return [...thoughts, ...said]
  }

  /** What of a turn's text was not sent. */
  #complete(type: TextDelta['type'], event: Of<'turn-end'>, whole: string): SessionUpdate[] {
    const key = keyOf(event)
    const stream = this.#streams[type]
    const isOurs = stream?.key === key
    if (isOurs) delete this.#streams[type]
    const sent = isOurs ? stream.sent : ''
    if (whole.trim() === '') return []
    const id = this.#messageId(key)
    if (whole.startsWith(sent)) {
      const rest = `${whole.slice(sent.length)}\n\n`
      return [chunk(type, rest, id)]
    }
    return [chunk(type, `\n\n${whole}\n\n`, id)]
  }

  #messageId(key: string): string {
    return `${this.#place.runId}/${key}`
  }

  /** A text once. */
  #say(text: string): SessionUpdate[] {
    const said = text.trim()
    if (said === '' || said === this.#said) return []
    this.#said = said
    return [message(`${said}\n\n`)]
  }

  #ended({ outcome, summary, message: why }: Of<'run-end'>): SessionUpdate[] {
    const calls = [...this.#calls.values()].map(
      (toolCallId): SessionUpdate => ({ sessionUpdate: 'tool_call_update', toolCallId, status: 'failed' }),
    )
    this.#calls.clear()
    const failure = outcome === 'completed' || why === '' ? [] : [message(`${headOf(outcome)}: ${why}\n\n`)]
    return [...calls, ...this.#say(summary), ...failure]
  }

  #usage({ context }: Of<'turn-end'>): SessionUpdate[] {
    if (context === undefined) return []
    const { costUsd } = this.#state
    return [
      {
        ...{ sessionUpdate: 'usage_update', used: context.tokens, size: context.maxTokens },
        ...(costUsd === null ? {} : { cost: { amount: costUsd, currency: 'USD' } }),
      },
    ]
  }

  #planUpdate(): SessionUpdate[] {
    const { plan, steps } = this.#state
    // A plan of one step says nothing beside the task.
    if (plan === null || plan.steps.length < 2) return []
    const entries = plan.steps.map(({ id, title }): PlanEntry => {
      const state = steps[id]?.state ?? 'pending'
      const content = `${fates[state] ?? ''}${this.#place.words.line(title)}`
      return { content, priority: 'medium', status: statuses[state] }
    })
    const text = JSON.stringify(entries)
    if (text === this.#plan) return []
    this.#plan = text
    return [{ sessionUpdate: 'plan', entries }]
  }

  /** The call that is asked about, which has not started. */
  #asked(seq: number, { request, access }: Of<'approval-request'>): SessionUpdate[] {
    const { agentPath, callId, tool } = request
    if (this.callIdOf(agentPath, callId) !== undefined) return []
    const id = this.#nameCall(seq, agentPath, callId)
    const title =
      access === undefined ? titleOf(tool, request.arguments, agentPath) : `network access: ${access.address}`
    return [
      {
        ...{ sessionUpdate: 'tool_call', toolCallId: id, title: this.#place.words.line(title, 300) },
        ...{ kind: access === undefined ? kindOf(tool) : 'fetch', status: 'pending' },
        locations: locationsOf(this.#place.directory, argumentPaths(request.arguments)),
        ...this.#rawInput(request.arguments),
      },
    ]
  }

  #callStarted(seq: number, agentPath: string, event: Of<'tool-start'>): SessionUpdate[] {
    const known = this.callIdOf(agentPath, event.callId)
    if (known !== undefined)
      return [{ sessionUpdate: 'tool_call_update', toolCallId: known, status: 'in_progress' }]
    const { tool, kind } = event
    const title = titleOf(tool, event.arguments, agentPath)
    return [
      {
        ...{ sessionUpdate: 'tool_call', toolCallId: this.#nameCall(seq, agentPath, event.callId) },
        ...{ title: this.#place.words.line(title, 300), kind: kindOf(tool, kind), status: 'in_progress' },
        locations: locationsOf(this.#place.directory, argumentPaths(event.arguments)),
        ...this.#rawInput(event.arguments),
      },
    ]
  }

  #callEnded(agentPath: string, event: Of<'tool-end'>): SessionUpdate[] {
    const key = `${agentPath} ${event.callId}`
    const id = this.#calls.get(key)
    this.#calls.delete(key)
    if (id === undefined) return []
    const { reads = [], writes = [], error } = event
    const places = locationsOf(this.#place.directory, [...writes, ...reads])
    return [
      {
        ...{ sessionUpdate: 'tool_call_update', toolCallId: id },
        status: error === undefined ? 'completed' : 'failed',
        content: contentOf(this.#place.directory, event),
        ...(places.length === 0 ? {} : { locations: places }),
      },
    ]
  }

  #subAgentStarted(seq: number, agentPath: string, { brief }: Of<'agent-start'>): SessionUpdate[] {
    const title = this.#place.words.line(`Sub-agent ${agentPath.replace(/^root\//, '')}: ${brief}`, 200)
    return [
      {
        ...{ sessionUpdate: 'tool_call', toolCallId: this.#nameCall(seq, agentPath, '') },
        ...{
          title,
          kind: 'think',
          status: 'in_progress',
          content: [textContent(fenced(brief.slice(0, 4_000)))],
        },
      },
    ]
  }

  #subAgentEnded(agentPath: string, { state, text }: Of<'agent-end'>): SessionUpdate[] {
    const id = this.#calls.get(`${agentPath} `)
    this.#calls.delete(`${agentPath} `)
    if (id === undefined) return []
    return [
      {
        ...{ sessionUpdate: 'tool_call_update', toolCallId: id },
        ...{
          status: state === 'completed' ? 'completed' : 'failed',
          content: [textContent(text.slice(0, 16_000))],
        },
      },
    ]
  }

  #nameCall(seq: number, agentPath: string, callId: string): string {
    const id = `${this.#place.runId}/${seq}`
    const [oldest] = this.#calls.keys()
    if (this.#calls.size >= callsMax && oldest !== undefined) this.#calls.delete(oldest)
    this.#calls.set(`${agentPath} ${callId}`, id)
    return id
  }

  #rawInput(json: string): { rawInput?: unknown } {
    if (json.length > rawInputMaxChars) return {}
    const given = readArguments(json)
    return given === undefined ? {} : { rawInput: given }
  }
}

const keyOf = ({ stepId, turn }: { readonly stepId: string; readonly turn: number }) => `${stepId}/${turn}`

function headOf(outcome: string): string {
  return outcome === 'cancelled' ? 'The run was cancelled' : 'The run failed'
}

export function message(text: string): SessionUpdate {
  return { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } }
}

export function thought(text: string): SessionUpdate {
  return { sessionUpdate: 'agent_thought_chunk', content: { type: 'text', text } }
}

function chunk(type: TextDelta['type'], text: string, messageId: string): SessionUpdate {
  const sessionUpdate = type === 'text-delta' ? 'agent_message_chunk' : 'agent_thought_chunk'
  return { sessionUpdate, messageId, content: { type: 'text', text } }
}
