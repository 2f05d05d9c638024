/** The model of a run that can continue from a checkpoint: an answer that its log has is not asked for again. */
import type { Model } from '#runtime/llm/model.ts'
import { sourceHeaders } from '#specs/protocol/model-request.ts'
import type { RunLog } from './run-log.ts'

/** Name in the log of the model's answers in a step. */
export function modelName(stepId: string): string {
  return `model ${stepId}`
}

/** An interrupted request has no answer to keep. */
class Interrupted extends Error {
  readonly answer: Awaited<ReturnType<Model>>
  constructor(answer: Awaited<ReturnType<Model>>) {
    super('the request was interrupted')
    this.answer = answer
  }
}

/** Logs the root agent's answers: of a sub-agent the log has its result alone, and all of it is done again without. */
export function loggedModel(model: Model, log: RunLog): Model {
  return async (request, hooks) => {
    const { [sourceHeaders.agentPath]: agentPath = 'root' } = hooks.headers ?? {}
    if (agentPath !== 'root') return await model(request, hooks)
    const stepId = hooks.headers?.[sourceHeaders.stepId] ?? ''
    try {
      return await log.once(modelName(stepId), async () => {
        const answer = await model(request, hooks)
        if (!answer.ok && hooks.signal.aborted) throw new Interrupted(answer)
        return answer
      })
    } catch (error) {
      if (error instanceof Interrupted) return error.answer
      throw error
    }
  }
}
