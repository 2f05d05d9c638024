/** The JSON schema of workflow files, for editors. Says less than `readWorkspace`: nothing about the graph. */
import * as z from 'zod'
import { FunctionDetails, StepDetails, WorkflowDetails } from './format.ts'

/** Where editors find the published schema. */
export const schemaFile = 'workflow.schema.json'

export function workflowJsonSchema(): Readonly<Record<string, unknown>> {
  const { $schema, ...list } = toSchema(WorkflowDetails)
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
    $defs: {
      list,
      step: withoutHead(toSchema(StepDetails)),
      function: withoutHead(toSchema(FunctionDetails)),
    },
  }
}

function toSchema(schema: z.ZodType): Record<string, unknown> {
  return { ...z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }) }
}

function withoutHead({ $schema: _, ...schema }: Record<string, unknown>): Record<string, unknown> {
  return schema
}
