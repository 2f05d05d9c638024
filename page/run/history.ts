/** The history of a run for the screen: entries of a log, and the state at any line. Made from journal lines alone. */
import type { AgentEvent, HostEvent, JournalEvent } from '#specs/protocol/event.ts'
import { initialRunState, type RunState, reduceRun } from '#specs/protocol/run-state.ts'
import { bytes, count, duration } from '../parts/text.ts'
import { innerOf } from './workflow-words.ts'

type Of<T extends (AgentEvent | HostEvent)['type']> = Extract<AgentEvent | HostEvent, { type: T }>
type Later<T extends (AgentEvent | HostEvent)['type']> = { readonly seq: number; readonly event: Of<T> }

interface Place {
  /** Line of the journal at which it begins. */
  readonly seq: number
  readonly at: number
  readonly agentPath: string
  readonly stepId?: string
}

/** One row of the log. What follows later, such as the end of a call, is added to its row. */
export type Entry = Place &
  (
    | {
        readonly kind: 'prompt'
        readonly text: string
        readonly images: NonNullable<Of<'run-start'>['images']>
        /** Options that have no effect. */
        readonly notes: readonly string[]
      }
    | { readonly kind: 'text'; readonly event: Of<'turn-end'> }
    | { readonly kind: 'call'; readonly event: Of<'tool-start'>; end?: Later<'tool-end'> }
    | {
        readonly kind: 'question'
        readonly event: Of<'approval-request'>
        decision?: Later<'approval-decision'>
      }
    | {
        readonly kind: 'step'
        readonly event: Of<'step-start' | 'step-end' | 'step-retry'>
        /** For people. */
        readonly title: string
        /** Whether the last text of the step says the same. */
        readonly repeats: boolean
      }
    | { readonly kind: 'plan'; readonly event: Of<'plan-update'> }
    | { readonly kind: 'agent'; readonly event: Of<'agent-start' | 'agent-end'>; readonly repeats: boolean }
    | { readonly kind: 'message'; readonly event: Of<'steer-request'>; seen?: number }
    | { readonly kind: 'network'; readonly event: Of<'egress-end' | 'egress-denied'> }
    | { readonly kind: 'host'; readonly level: 'info' | 'warn'; readonly text: string }
    | { readonly kind: 'end'; readonly event: Of<'run-end'>; readonly repeats: boolean }
  )

export type EntryOf<K extends Entry['kind']> = Extract<Entry, { kind: K }>

/** Lines between two states that are kept, so that any other is near one. */
const snapshotEvery = 256

export class RunHistory {
  readonly entries: Entry[] = []
  /** Connections out of the VM, in their order. */
  readonly network: EntryOf<'network'>[] = []
  state: RunState = initialRunState
  start: Of<'run-start'> | null = null
  startedAt = 0
  lastAt = 0
  readonly #lines: JournalEvent[] = []
  readonly #snapshots: RunState[] = [initialRunState]
  readonly #calls = new Map<string, EntryOf<'call'>>()
  readonly #questions = new Map<string, EntryOf<'question'>>()
  /** Texts of the agents: the end of a step often says the last of them again. */
  readonly #said = new Set<string>()
  readonly #messages = new Map<string, EntryOf<'message'>>()
  /** Entries that began, by step with `each`. */
  readonly #rounds = new Map<string, Set<string>>()

  /** Number of lines. */
  get length(): number {
    return this.#lines.length
  }

  /** `from` of the lines that follow. */
  get next(): number {
    return (this.#lines.at(-1)?.seq ?? 0) + 1
  }

  /** Takes the next line; one that is known already is left out. */
  add(line: JournalEvent): void {
    if (line.seq < this.next) return
    this.#lines.push(line)
    this.state = reduceRun(this.state, line)
    if (this.#lines.length % snapshotEvery === 0) this.#snapshots.push(this.state)
    this.lastAt = line.at
    const agentPath = line.source === 'agent' ? line.agentPath : 'root'
    this.#enter(line.event, { seq: line.seq, at: line.at, agentPath })
  }

  /** The state behind the first `length` lines. */
  stateAt(length: number): RunState {
    if (length >= this.#lines.length) return this.state
    const nearest = Math.floor(Math.max(0, length) / snapshotEvery)
    let state = this.#snapshots[nearest] ?? initialRunState
    for (const line of this.#lines.slice(nearest * snapshotEvery, length)) state = reduceRun(state, line)
    return state
  }

  /** Number and time of the line at a position from 1. */
  lineAt(position: number): { readonly seq: number; readonly at: number } | undefined {
    return this.#lines[position - 1]
  }

  /** The question with this id, decided or not. */
  question(approvalId: string): EntryOf<'question'> | undefined {
    return this.#questions.get(approvalId)
  }

  /** Number of entries that began, by step with `each`. */
  get rounds(): ReadonlyMap<string, number> {
    return new Map([...this.#rounds].map(([stepId, entries]) => [stepId, entries.size]))
  }

  #noteRound(stepId: string): void {
    const found = innerOf(stepId)
    const [, entry] = /^(\d+)(?:--|$)/.exec(found?.inner ?? '') ?? []
    if (found === undefined || entry === undefined) return
    const entries = this.#rounds.get(found.outer) ?? new Set()
    this.#rounds.set(found.outer, entries.add(entry))
  }

  #enter(event: AgentEvent | HostEvent, place: Place): void {
    switch (event.type) {
      case 'run-start':
        this.start = event
        this.startedAt = place.at
        this.#push({
          ...place,
          ...{ kind: 'prompt', text: event.prompt, images: event.images ?? [], notes: event.notes ?? [] },
        })
        return
      case 'turn-end':
        if (event.text.trim() !== '' || (event.reasoning ?? '') !== '')
          this.#push({ ...place, stepId: event.stepId, kind: 'text', event })
        if (event.text.trim() !== '') this.#said.add(event.text)
        return
      case 'tool-start': {
        const entry: EntryOf<'call'> = { ...place, stepId: event.stepId, kind: 'call', event }
        this.#calls.set(event.callId, entry)
        this.#push(entry)
        return
      }
      case 'tool-end': {
        const entry = this.#calls.get(event.callId)
        if (entry !== undefined) entry.end = { seq: place.seq, event }
        return
      }
      case 'approval-request': {
        const { agentPath, stepId } = event.request
        const entry: EntryOf<'question'> = { ...place, agentPath, stepId, kind: 'question', event }
        this.#questions.set(event.request.approvalId, entry)
        this.#push(entry)
        return
      }
      case 'approval-decision': {
        const entry = this.#questions.get(event.approvalId)
        if (entry !== undefined) entry.decision = { seq: place.seq, event }
        return
      }
      case 'plan-update':
        this.#push({ ...place, kind: 'plan', event })
        return
      case 'step-start':
      case 'step-end':
      case 'step-retry':
        this.#push({
          ...place,
          ...{ stepId: event.stepId, kind: 'step', event },
          title: this.state.plan?.steps.find(({ id }) => id === event.stepId)?.title ?? event.stepId,
          repeats: event.type === 'step-end' && this.#isSaid(event.text),
        })
        return
      case 'agent-start':
      case 'agent-end':
        this.#push({
          ...place,
          ...{ stepId: event.stepId, kind: 'agent', event },
          repeats: event.type === 'agent-end' && this.#isSaid(event.text),
        })
        return
      case 'steer-request': {
        const entry: EntryOf<'message'> = {
          ...place,
          agentPath: event.agentPath ?? 'root',
          kind: 'message',
          event,
        }
        this.#messages.set(event.messageId, entry)
        this.#push(entry)
        return
      }
      case 'steer-seen':
        for (const id of event.messageIds) {
          const entry = this.#messages.get(id)
          if (entry !== undefined) entry.seen = place.seq
        }
        return
      case 'egress-end':
      case 'egress-denied': {
        const entry: EntryOf<'network'> = { ...place, kind: 'network', event }
        this.network.push(entry)
        this.#push(entry)
        return
      }
      case 'run-end':
        this.#push({ ...place, kind: 'end', event, repeats: this.#isSaid(event.summary) })
        return
      default: {
        const said = sayOf(event)
        if (said !== undefined) this.#push({ ...place, kind: 'host', ...said })
      }
    }
  }

  #isSaid(text: string): boolean {
    return this.#said.has(text)
  }

  #push(entry: Entry): void {
    if (entry.stepId !== undefined) this.#noteRound(entry.stepId)
    this.entries.push(entry)
  }
}

/** One line about an event that has no row of its own kind; undefined for what a reader does not need. */
function sayOf(event: AgentEvent | HostEvent): { level: 'info' | 'warn'; text: string } | undefined {
  const info = (text: string) => ({ level: 'info' as const, text })
  const warn = (text: string) => ({ level: 'warn' as const, text })
  switch (event.type) {
    case 'note':
      return { level: event.level, text: event.text }
    case 'workspace-ready':
      return info(
        `Copied ${count(event.files, 'file')} (${bytes(event.bytes)})${event.leftOut > 0 ? `, left out ${event.leftOut}` : ''}`,
      )
    case 'vm-ready':
      return info(`The VM runs (${event.accelerator}, ${event.confinement})`)
    case 'vm-sleep':
      return info('The VM is saved while the run waits')
    case 'vm-wake':
      return info('The VM is restored')
    case 'run-sleep':
      return info('The run sleeps without a VM; an answer continues it')
    case 'run-interrupt':
      return warn(`The run is interrupted: ${event.message}`)
    case 'run-take':
      return warn(`${event.host} took the run over: ${event.message}`)
    case 'run-resume':
      return warn(`The run continues from its last checkpoint: ${event.message}`)
    case 'vm-end':
      return event.expected ? undefined : warn(`The VM ended: ${event.message}`)
    case 'session-end':
      return warn(`The connection to the agent ended: ${event.message}`)
    case 'model-retry':
      if (event.fallback !== undefined)
        return warn(`The model cannot answer (${event.cause}); ${event.fallback} is asked instead`)
      return warn(
        `The model server refused a request (${event.cause}); next try in ${duration(event.delayMs)}`,
      )
    case 'turn-retry':
      return warn(`A model request failed: ${event.message}`)
    case 'changes-ready':
      return info(`The changes are collected: ${count(event.entries, 'path')}`)
    case 'apply-end':
      return info(`Applied ${count(event.applied, 'change')}`)
    case 'undo-end':
      return info(`Undid ${count(event.restored, 'change')}`)
    case 'approval-revoke':
      return info(`${event.by} revoked an answer`)
    case 'context-compact':
      return info('The conversation was shortened')
    case 'context-shown':
      return info(`Context: ${event.sections.map(({ name, from }) => `${name} of ${from}`).join(', ')}`)
    case 'memory-propose':
      return info(`The run proposes to remember: ${event.note.text}`)
    case 'note-propose':
      return info(`The run proposes a note: ${event.note.text}`)
    case 'hook-end':
      return event.decision === 'deny' ? warn(`A hook refused: ${event.reason ?? event.hook}`) : undefined
    case 'agent-cancel-request':
      return info(`${event.by} cancels ${event.agentPath}`)
    case 'pause-request':
      return info(`${event.by} pauses the agent`)
    case 'resume-request':
      return info(`${event.by} resumes the agent`)
    case 'cancel-request':
      return info(`${event.by} cancels the run`)
    case 'vm-access':
      return info(`A person opens a ${event.kind} in the VM${event.detail === '' ? '' : `: ${event.detail}`}`)
    case 'disk-wait':
      return warn(`Writing waited ${duration(event.durationMs)} for free disk space`)
    default:
      return undefined
  }
}
