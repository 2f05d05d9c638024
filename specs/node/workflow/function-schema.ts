/** The parameters of a function as a JSON schema of an object. */
import type { WorkflowFunction } from './workspace-data.ts'

export function parametersOf({ parameters }: Pick<WorkflowFunction, 'parameters'>): Record<string, unknown> {
  const properties = parameters.map(({ name, type, description, enum: values, items }) => [
    name,
    {
      type,
      ...(description === undefined ? {} : { description }),
      ...(values === undefined ? {} : { enum: values }),
      ...(items === undefined ? {} : { items }),
    },
  ])
  const required = parameters.filter((one) => one.required !== false).map(({ name }) => name)
  return {
    type: 'object',
    properties: Object.fromEntries(properties),
    ...(required.length === 0 ? {} : { required }),
    additionalProperties: false,
  }
}
