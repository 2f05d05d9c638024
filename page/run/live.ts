/** What a run at work shows beside its journal: text and output as they arrive, use of the VM, waits. Bounded. */
import type { AgentEvent, Delta, HostDelta, HostEvent } from '#specs/protocol/event.ts'

type HostOf<T extends HostDelta['type']> = Extract<HostDelta, { type: T }>

export interface LiveText {
  readonly agentPath: string
  readonly stepId: string
  text: string
  reasoning: string
  /** Tool whose arguments the model writes. */
  tool?: string
}

/** Characters of a text or an output that are kept: the last ones. */
const keptChars = 20_000
const useSamples = 60

export class RunLive {
  /** By agent, step and turn. */
  readonly texts = new Map<string, LiveText>()
  /** Output of programs by call. */
  readonly outputs = new Map<string, string>()
  use: HostOf<'vm-use'> | null = null
  /** Processor use of the last minutes, in percent of one processor. */
  readonly cpu: number[] = []
  timeLeft: HostOf<'time-left'> | null = null
  prepare: HostOf<'prepare'> | null = null
  changes: HostOf<'changes'> | null = null
  diskFull: HostOf<'disk-full'> | null = null
  modelWait: HostOf<'model-wait'> | null = null

  add(delta: Delta | HostDelta, agentPath: string): void {
    switch (delta.type) {
      case 'text-delta':
      case 'reasoning-delta': {
        const entry = this.#textOf(agentPath, delta.stepId, delta.turn)
        const field = delta.type === 'text-delta' ? 'text' : 'reasoning'
        entry[field] = joined(entry[field], delta.offset, delta.text)
        return
      }
      case 'arguments-delta':
        this.#textOf(agentPath, delta.stepId, delta.turn).tool = delta.tool
        return
      case 'turn-reset':
        this.texts.delete(keyOf(agentPath, delta.stepId, delta.turn))
        return
      case 'tool-output-delta':
        this.outputs.set(
          delta.callId,
          ((this.outputs.get(delta.callId) ?? '') + delta.text).slice(-keptChars),
        )
        return
      case 'vm-use':
        this.use = delta
        if (delta.cpuPercent !== undefined) this.cpu.push(delta.cpuPercent)
        if (this.cpu.length > useSamples) this.cpu.shift()
        return
      case 'time-left':
        this.timeLeft = delta
        return
      case 'prepare':
        this.prepare = delta
        return
      case 'changes':
        this.changes = delta
        return
      case 'disk-full':
        this.diskFull = delta
        return
      case 'model-wait':
        this.modelWait = delta
        return
      case 'run-interrupted':
        this.texts.clear()
        this.outputs.clear()
    }
  }

  /** A journal line ends what was live. */
  settle(event: AgentEvent | HostEvent, agentPath: string): void {
    switch (event.type) {
      case 'turn-end':
        this.texts.delete(keyOf(agentPath, event.stepId, event.turn))
        return
      case 'tool-end':
        this.outputs.delete(event.callId)
        return
      case 'model-end':
        this.modelWait = null
        return
      case 'session-start':
      case 'changes-ready':
        this.prepare = null
        return
      case 'disk-wait':
        this.diskFull = null
        return
      case 'run-resume':
      case 'run-end':
        this.texts.clear()
        this.outputs.clear()
        this.prepare = null
        this.modelWait = null
        this.diskFull = null
        this.use = null
    }
  }

  #textOf(agentPath: string, stepId: string, turn: number): LiveText {
    const key = keyOf(agentPath, stepId, turn)
    const known = this.texts.get(key)
    if (known !== undefined) return known
    // A turn of the same step that has no end was lost with its session.
    for (const [other, { agentPath: path, stepId: step }] of this.texts)
      if (path === agentPath && step === stepId) this.texts.delete(other)
    const entry: LiveText = { agentPath, stepId, text: '', reasoning: '' }
    this.texts.set(key, entry)
    return entry
  }
}

const keyOf = (agentPath: string, stepId: string, turn: number) => `${agentPath} ${stepId} ${turn}`

/** A piece that came twice is not repeated, and a lost one is marked. */
function joined(before: string, offset: number, piece: string): string {
  if (offset < before.length) return before.slice(0, offset) + piece
  const gap = offset > before.length && before.length < keptChars ? '…' : ''
  return (before + gap + piece).slice(0, keptChars)
}
