/** Steps and sub-agents under way: AG-UI wants each closed before its request ends, and the next one opens it again. */
import { type Event, EventType } from '@ag-ui/core'

interface Agent {
  readonly id: string
  readonly description: string
}

/** An agent may begin steps and sub-agents without end. */
const openMax = 256
const textMaxChars = 16_000

export class OpenWork {
  /** Names of steps as they were started, by step. */
  readonly #steps = new Map<string, string>()
  readonly #agents = new Map<string, Agent>()

  startStep(stepId: string, title: string): Event[] {
    if (this.#steps.has(stepId) || this.#steps.size >= openMax) return []
    // Two steps under way have different names.
    const isTaken = [...this.#steps.values()].includes(title)
    const stepName = isTaken ? `${title} (${stepId})` : title
    this.#steps.set(stepId, stepName)
    return [{ type: EventType.STEP_STARTED, stepName }]
  }

  endStep(stepId: string): Event[] {
    const stepName = this.#steps.get(stepId)
    this.#steps.delete(stepId)
    return stepName === undefined ? [] : [{ type: EventType.STEP_FINISHED, stepName }]
  }

  startAgent(agentPath: string, id: string, description: string): Event[] {
    if (this.#agents.has(agentPath) || this.#agents.size >= openMax) return []
    this.#agents.set(agentPath, { id, description })
    return [this.#started(agentPath, { id, description })]
  }

  endAgent(agentPath: string, state: 'completed' | 'failed' | 'cancelled', text: string): Event[] {
    const subagentRunId = this.#agents.get(agentPath)?.id
    this.#agents.delete(agentPath)
    if (subagentRunId === undefined) return []
    const said = text.slice(0, textMaxChars).toWellFormed()
    return state === 'completed'
      ? [{ type: EventType.SUBAGENT_FINISHED, subagentRunId, result: said }]
      : [{ type: EventType.SUBAGENT_ERROR, subagentRunId, message: said === '' ? state : said, code: state }]
  }

  /** Whose a call is; nothing for the agent of the run itself. */
  attributionOf(agentPath: string): { subagentRunId?: string } {
    const id = this.#agents.get(agentPath)?.id
    return id === undefined ? {} : { subagentRunId: id }
  }

  /** What a later request shows as begun. */
  reopen(): Event[] {
    return [
      ...[...this.#agents].map(([agentPath, agent]) => this.#started(agentPath, agent)),
      ...[...this.#steps.values()].map((stepName): Event => ({ type: EventType.STEP_STARTED, stepName })),
    ]
  }

  /** @param isAsking whether it continues with a later request */
  closeAll(isAsking: boolean): Event[] {
    const steps = [...this.#steps.values()].map(
      (stepName): Event => ({ type: EventType.STEP_FINISHED, stepName }),
    )
    const agents = [...this.#agents.values()].map(
      ({ id: subagentRunId }): Event =>
        isAsking
          ? { type: EventType.SUBAGENT_FINISHED, subagentRunId, outcome: { type: 'suspended' } }
          : { type: EventType.SUBAGENT_ERROR, subagentRunId, message: 'it ended with its run' },
    )
    this.#steps.clear()
    this.#agents.clear()
    return [...steps, ...agents]
  }

  #started(agentPath: string, { id, description }: Agent): Event {
    const parent = this.#agents.get(agentPath.slice(0, agentPath.lastIndexOf('/')))?.id
    return {
      ...{ type: EventType.SUBAGENT_STARTED, subagentRunId: id, name: agentPath.replace(/^root\//, '') },
      ...{ description },
      ...(parent === undefined ? {} : { parentSubagentRunId: parent }),
    }
  }
}
