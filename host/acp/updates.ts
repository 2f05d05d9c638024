/**
 * The events of a run as updates of a session. What the model says streams from deltas, which may be lost; the event at the
 * end of its turn has the whole text and completes what was sent.
 */

import type { PlanEntry, SessionUpdate } from '@agentclientprotocol/sdk'
import type { AgentEvent, Delta, HostEvent, JournalEvent } from '#specs/protocol/event.ts'
import { type FeedItem, initialRunState, type RunState, reduceRun, type StepState } from '../index.ts'
import { CallUpdates, type RunPlace } from './call-updates.ts'

type Of<T> = Extract<AgentEvent | HostEvent, { type: T }>
type TextDelta = Extract<Delta, { type: 'text-delta' | 'reasoning-delta' }>

/** A text under way: which turn, and what of it was sent. */
interface Stream {
  readonly key: string
  sent: string
  /** Whether a part was lost: the rest comes at the end of the turn. */
  isBroken: boolean
}

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
  readonly #place: RunPlace
  readonly #calls: CallUpdates
  #streams: Partial<Record<TextDelta['type'], Stream>> = {}
  /** The last text of the agent that was sent whole. */
  #said = ''
  #state: RunState = initialRunState
  #plan = ''

  constructor(place: RunPlace) {
    this.#place = place
    this.#calls = new CallUpdates(place)
  }

  get state(): RunState {
    return this.#state
  }

  /** Id of the call that a question is about; its update comes with the question. */
  callIdOf(agentPath: string, callId: string): string | undefined {
    return this.#calls.idOf(agentPath, callId)
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
        return this.#calls.asked(seq, event)
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
        return this.#calls.started(seq, agentPath, event)
      case 'tool-end':
        return this.#calls.ended(agentPath, event)
      case 'agent-start':
        return this.#calls.agentStarted(seq, agentPath, event)
      case 'agent-end':
        return this.#calls.agentEnded(agentPath, event)
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
    const calls = this.#calls.endAll()
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
