/** Tool calls and sub-agents of a run as updates of a session: each call has one id, from its question to its end. */
import type { SessionUpdate } from '@agentclientprotocol/sdk'
import type { AgentEvent, HostEvent } from '#specs/protocol/event.ts'
import { isWithinDepth } from '#specs/protocol/json-depth.ts'
import type { CleanText } from '#specs/protocol/shown-text.ts'
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

export interface RunPlace {
  readonly runId: string
  /** The workspace on the host. */
  readonly directory: string
  readonly words: CleanText
}

const rawInputMaxChars = 32_768
const rawInputMaxDepth = 64
/** Calls that have not ended: an agent may start them without end. */
const callsMax = 1_024

export class CallUpdates {
  readonly #place: RunPlace
  /** Ids of calls that have not ended, by agent and call. */
  readonly #calls = new Map<string, string>()

  constructor(place: RunPlace) {
    this.#place = place
  }

  /** Undefined for a call that is not under way. */
  idOf(agentPath: string, callId: string): string | undefined {
    return this.#calls.get(`${agentPath} ${callId}`)
  }

  /** With the run, each call is over. */
  endAll(): SessionUpdate[] {
    const updates = [...this.#calls.values()].map(
      (toolCallId): SessionUpdate => ({ sessionUpdate: 'tool_call_update', toolCallId, status: 'failed' }),
    )
    this.#calls.clear()
    return updates
  }

  /** The call that is asked about, which has not started. */
  asked(seq: number, { request, access }: Of<'approval-request'>): SessionUpdate[] {
    const { agentPath, callId, tool } = request
    if (this.idOf(agentPath, callId) !== undefined) return []
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

  started(seq: number, agentPath: string, event: Of<'tool-start'>): SessionUpdate[] {
    const known = this.idOf(agentPath, event.callId)
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

  ended(agentPath: string, event: Of<'tool-end'>): SessionUpdate[] {
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

  agentStarted(seq: number, agentPath: string, { brief }: Of<'agent-start'>): SessionUpdate[] {
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

  agentEnded(agentPath: string, { state, text }: Of<'agent-end'>): SessionUpdate[] {
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
    return given === undefined || !isWithinDepth(given, rawInputMaxDepth) ? {} : { rawInput: given }
  }
}
