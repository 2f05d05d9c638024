/** `add_steps`: adds steps and functions to the workflow that runs. The executor decides what a step may add. */
import * as z from 'zod'
import { Line } from '#specs/protocol/text.ts'
import type { WorkflowStep } from '#specs/protocol/workflow.ts'
import { defineTool, type Tool, toolFailure, toolSuccess } from '../tool-calls/tool.ts'

export const addStepsName = 'add_steps'

const names = { type: 'array', items: { type: 'string' } }
const anyObject = { type: 'object', properties: {}, additionalProperties: true }
const message = {
  type: 'object',
  properties: {
    role: { type: 'string', enum: ['system', 'user', 'assistant'] },
    content: { type: 'string' },
  },
  required: ['role', 'content'],
}

/** A step, as in a workflow file. What is said of a field is for the model. */
const stepForm = {
  type: 'object',
  properties: {
    id: { type: 'string', description: 'A new name' },
    description: { type: 'string' },
    chat: {
      type: 'array',
      items: message,
      description: 'Messages to a model; {{steps.ID.output}} is replaced',
    },
    call: {
      type: 'object',
      properties: { function: { type: 'string' }, arguments: anyObject },
      required: ['function'],
      description: 'Instead of chat: one call without a model',
    },
    ask: {
      type: 'object',
      properties: { question: { type: 'string' }, options: names },
      required: ['question'],
      description: 'Instead of chat: a question to a person',
    },
    function: { ...names, description: 'Functions that its model may call' },
    tools: { ...names, description: 'Tools that its model may call' },
    nextStep: {
      description:
        'An added step, a list of them, a list of {when, step}, or - for none; default: the next one',
    },
    when: { type: 'string', description: 'CEL condition; where it is false, the step is skipped' },
    each: {
      type: 'object',
      properties: { in: { type: 'string' }, parallel: { type: 'integer' }, max: { type: 'integer' } },
      required: ['in'],
      description:
        'Runs the step for each entry of the list that the CEL expression gives; {{item}} is the entry',
    },
    repeat: {
      type: 'object',
      properties: { until: { type: 'string' }, max: { type: 'integer' } },
      required: ['until', 'max'],
    },
    output: { ...anyObject, description: 'JSON schema of its answer' },
    model: { type: 'string' },
    effort: { type: 'string', enum: ['none', 'low', 'medium', 'high'] },
    maxTurns: { type: 'integer' },
    retries: { type: 'integer' },
    onFailure: { description: 'abort (default), continue, or {step} of an added step' },
    writes: { ...names, description: 'Paths that it writes' },
  },
  required: ['id'],
}

const functionForm = {
  type: 'object',
  properties: {
    name: { type: 'string', description: 'A new name of A-Z a-z 0-9 _' },
    description: { type: 'string' },
    parameters: {
      type: 'array',
      items: {
        type: 'object',
        properties: {
          type: { type: 'string', enum: ['string', 'number', 'integer', 'boolean', 'object', 'array'] },
          name: { type: 'string' },
          description: { type: 'string' },
          required: { type: 'boolean' },
        },
        required: ['type', 'name'],
      },
    },
    code: { type: 'string', description: 'Defines a function of this name' },
    language: { type: 'string', enum: ['javascript', 'python'] },
    returns: { ...anyObject, description: 'JSON schema of what it returns' },
    timeoutMs: { type: 'integer' },
    memoryMiB: { type: 'integer' },
  },
  required: ['name', 'description', 'code'],
}

const inputSchema = z.strictObject({
  reason: Line.min(1).describe('Why the workflow needs them, in one line for people'),
  // Parsed by the executor, which says everything that is wrong at once.
  steps: z.unknown().optional().meta({ type: 'array', items: stepForm }),
  functions: z.unknown().optional().meta({ type: 'array', items: functionForm }),
})

export function createAddStepsTool({ steps, functions }: NonNullable<WorkflowStep['mayAdd']>): Tool {
  return defineTool({
    name: addStepsName,
    description: `Adds steps to this workflow, and functions with code for them: in all at most ${steps} steps and ${functions} functions. They run when you have answered, before what followed this step. A step that no other added one leads to begins first. Added steps may call your functions and tools, and added functions. They read the outputs of steps that have ended by then, also yours, as steps.ID.output.`,
    inputSchema,
    outputSchema: z.strictObject({ text: z.string() }),
    requiresApproval: false,
    readOnly: false,
    inPrograms: false,
    destructive: false,
    execute: async ({ reason, steps: added, functions: made }, { addSteps, callId, signal }) => {
      if (addSteps === undefined || callId === undefined)
        return toolFailure('unavailable', 'there is no workflow here to which steps could be added')
      const done = await addSteps({ reason, steps: added ?? [], functions: made ?? [] }, callId, signal)
      return done.ok ? toolSuccess({ text: done.value }) : done
    },
    render: ({ text }) => text,
  })
}
