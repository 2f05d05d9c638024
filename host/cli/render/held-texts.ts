/**
 * What the model says in its turns, each text once. The last text of a step or sub-agent is its answer, which its end
 * shows; so a text is held until the next event of its step shows that it was not the last.
 */
import type { AgentEvent, HostEvent } from '#specs/protocol/event.ts'
import type { RunLine } from '#specs/protocol/run-state.ts'
import { planTool } from '../../approvals/plan-question.ts'
import { underPath } from './agent-lines.ts'
import type { Colors } from './colors.ts'
import { saidLines } from './turn-lines.ts'

type TurnEnd = Extract<AgentEvent | HostEvent, { type: 'turn-end' }>

/** Begins the text in which a model gives a step up; the end of the step has the rest. */
const failureMark = /^STEP FAILED:\s*/
/** One text per step that runs. */
const heldMax = 256

export class HeldTexts {
  readonly #colors: Colors
  /** By agent and step. */
  readonly #held = new Map<string, { readonly agentPath: string; readonly text: string }>()

  constructor(colors: Colors) {
    this.#colors = colors
  }

  /** Lines to show before those of the event. */
  before({ event, agentPath = 'root' }: RunLine): string[] {
    switch (event.type) {
      case 'turn-end':
        return [...this.#show(agentPath, event.stepId), ...this.#hear(event, agentPath)]
      case 'tool-start':
      case 'steer-seen':
      case 'step-retry':
        return this.#show(agentPath, event.stepId)
      case 'step-start':
        return this.#show(agentPath, 'plan')
      case 'step-end':
        return this.#show(agentPath, event.stepId, event.text)
      case 'agent-end':
        return this.#showAll((path) => path === agentPath, event.text)
      case 'run-end':
        return this.#showAll(() => true, event.summary)
      default:
        return []
    }
  }

  /** A planner's words belong to the step that its other calls begin. */
  #hear({ stepId, text, calls }: TurnEnd, agentPath: string): string[] {
    const said = text.trim()
    const isPlan = stepId === 'plan' && (calls.length === 0 || calls.some(({ tool }) => tool === planTool))
    if (said === '' || isPlan) return []
    if ((stepId !== 'plan' && calls.length > 0) || this.#held.size >= heldMax)
      return this.#linesOf(agentPath, said)
    this.#held.set(keyOf(agentPath, stepId), { agentPath, text: said })
    return []
  }

  /** @param answer what the end of the step shows anyway */
  #show(agentPath: string, stepId: string, answer = ''): string[] {
    const key = keyOf(agentPath, stepId)
    const held = this.#held.get(key)
    this.#held.delete(key)
    if (held === undefined || answer.includes(held.text.replace(failureMark, ''))) return []
    return this.#linesOf(agentPath, held.text)
  }

  #showAll(is: (agentPath: string) => boolean, answer: string): string[] {
    const left = [...this.#held].filter(([, held]) => is(held.agentPath))
    for (const [key] of left) this.#held.delete(key)
    return left.flatMap(([, held]) =>
      answer.includes(held.text) ? [] : this.#linesOf(held.agentPath, held.text),
    )
  }

  #linesOf(agentPath: string, text: string): string[] {
    return underPath(agentPath, saidLines(text), this.#colors)
  }
}

function keyOf(agentPath: string, stepId: string): string {
  return `${agentPath} ${stepId}`
}
