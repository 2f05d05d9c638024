/**
 * The tools by which a model ends its run: `final_answer`, `need_user_input`, `blocked`. Each must be the only call of
 * its turn, so that no answer claims what other calls have yet to do.
 */
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { Text } from '#specs/protocol/text.ts'
import { readArguments } from '../arguments/read.ts'
import type { LLMTool, LLMToolCall } from '../contract/contract.ts'
import type { ApplicationTools } from '../environment/tool-set.ts'
import { toModelSchema } from '../llm/json-schema.ts'
import { type PendingUserInput, toPending, UserInputRequest } from '../tools/ask-user-input.ts'

const FinalAnswer = z.strictObject({
  answer: Text.min(1).describe('The whole answer: what was done, and what was found'),
})
const Blocked = z.strictObject({
  reason: Text.min(1).describe('What is in the way, and what was tried'),
})

const control = (description: string, parameters: z.ZodType): LLMTool => ({
  description: `${description} It must be the only call of its turn.`,
  parameters,
  readOnly: true,
  evidence: 'none',
})

const controlTools = {
  final_answer: control('Ends the task with its answer. Call it when the task is done.', FinalAnswer),
  need_user_input: control(
    'Ends the turn with questions to the person. Call it when the task cannot continue without a decision of theirs.',
    UserInputRequest,
  ),
  blocked: control('Ends the task without an answer. Call it when it cannot be done.', Blocked),
} satisfies ApplicationTools

/** Message to the model after a text, where only the control tools end the run. */
export const DEFAULT_CONTROL_TOOL_RECOVERY_INSTRUCTION =
  'A text does not end this task. Call a tool to continue, or final_answer, need_user_input or blocked to end it.'

/** What a control call says. */
export type ControlOutput =
  | { readonly type: 'final_answer'; readonly answer: string }
  | { readonly type: 'needs_user_input'; readonly pending: PendingUserInput }
  | { readonly type: 'blocked'; readonly reason: string }

export function isControlCall({ function: { name } }: LLMToolCall): boolean {
  return Object.hasOwn(controlTools, name)
}

/** @throws {CaissonError} `invalid_options` where the application has a tool of one of the names */
export function withControlTools(tools: ApplicationTools = {}): ApplicationTools {
  const clash = Object.keys(controlTools).find((name) => Object.hasOwn(tools, name))
  if (clash !== undefined)
    throw new CaissonError(
      'invalid_options',
      `the tool name ${clash} is reserved with controlTools; take another`,
    )
  return { ...tools, ...controlTools }
}

/** Reads the arguments of a control call; a failure is the durable artifact, as for other tools. */
export async function readControlCall(
  call: LLMToolCall,
): Promise<{ ok: true; output: ControlOutput } | { ok: false; content: string }> {
  const name = call.function.name as keyof typeof controlTools
  const { parameters } = controlTools[name]
  const tool = { name, readOnly: true, parameters, schema: toModelSchema(parameters as z.ZodType) }
  const read = await readArguments(tool, call.function.arguments)
  if (!read.ok) return { ok: false, content: read.error }
  const { input } = read.value
  switch (name) {
    case 'final_answer':
      return { ok: true, output: { type: name, answer: FinalAnswer.parse(input).answer } }
    case 'blocked':
      return { ok: true, output: { type: name, reason: Blocked.parse(input).reason } }
    case 'need_user_input': {
      const pending = toPending(UserInputRequest.parse(input), call.id)
      return { ok: true, output: { type: 'needs_user_input', pending } }
    }
  }
}
