/** One step from its opening to its end: the real conversation, registry and client, and a model's server that is scripted. */
import type { ChatMessage } from '#runtime/llm/messages.ts'
import { type Asked, type Script, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import type { Opening } from '../../context/opening.ts'
import { runStep, type StepResult } from '../../step/step.ts'
import { expectValidConversation } from './conversation.ts'
import { makeRun, modelAt, type TestRun, type TestRunOptions } from './run.ts'

export const someStep = {
  id: 's',
  title: 't',
  instructions: 'i',
  needs: [],
  writes: ['*'],
  onFailure: 'abort' as const,
}
export const someOpening: readonly ChatMessage[] = [
  { role: 'system', content: 'system' },
  { role: 'user', content: 'user' },
]

export interface StepTest extends TestRun {
  readonly result: StepResult
  readonly asked: readonly Asked[]
}

export interface StepTestOptions extends Omit<TestRunOptions, 'model'> {
  readonly opening?: Opening
  /** Called before the step begins. */
  during?(test: TestRun): void
}

/** Runs the step; its conversation is checked as every provider would. */
export async function performStep(
  script: Script | readonly ServerReply[],
  { opening = someOpening, during, ...options }: StepTestOptions = {},
): Promise<StepTest> {
  await using server = await startModelServer(script)
  const test = makeRun({ ...options, model: modelAt(server.baseUrl) })
  during?.(test)
  const result = await runStep(someStep, opening, test.run, test.run.signal)
  test.run.budget.stop()
  expectValidConversation(result.history)
  return { result, asked: server.asked, ...test }
}
