/** The JSON schema of workflow files, for editors. Says less than `readWorkspace`: nothing about the graph. */
import * as z from 'zod'
import {
  FunctionDetails,
  StepDetails,
  TakenFunctionDetails,
  WorkflowDetails,
} from '#specs/protocol/workflow-format.ts'

export function workflowJsonSchema(): Readonly<Record<string, unknown>> {
  const parts = z.object({
    list: WorkflowDetails,
    step: StepDetails,
    function: z.union([FunctionDetails, TakenFunctionDetails]),
  })
  // One schema, so that what the parts share has one definition.
  const { $schema, $defs, properties } = z.toJSONSchema(parts, { io: 'input' })
  const part = '[^@#]{1,100}'
  return {
    $schema,
    title: 'Workflow of Caisson',
    type: 'object',
    properties: { $schema: { type: 'string' } },
    patternProperties: {
      [`^${part}@{1,2}${part}@{1,2}step-${part}#details$`]: { $ref: '#/$defs/step' },
      [`^${part}@{1,2}${part}@{1,2}func-${part}#details$`]: { $ref: '#/$defs/function' },
      [`^${part}@{1,2}${part}#details$`]: { $ref: '#/$defs/list' },
    },
    additionalProperties: false,
    $defs: { ...$defs, ...properties },
  }
}
