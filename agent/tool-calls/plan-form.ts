/** The form of a plan, as a model gets it. */
import { isRecord, toModelSchema } from '#runtime/llm/json-schema.ts'
import { Plan } from '#specs/protocol/plan.ts'

/** @param models names that a step may have as its `model`; without any, a plan has no such field */
export function planForm(models: readonly string[] = []): Record<string, unknown> {
  const form = toModelSchema(Plan)
  const { properties } = form
  const steps = isRecord(properties) ? properties.steps : undefined
  if (
    !isRecord(properties) ||
    !isRecord(steps) ||
    !isRecord(steps.items) ||
    !isRecord(steps.items.properties)
  )
    throw new TypeError('a plan has steps')
  const { model: _, ...rest } = steps.items.properties
  const fields = models.length === 0 ? rest : { ...rest, model: { type: 'string', enum: [...models] } }
  const items = { ...steps.items, properties: fields }
  return { ...form, properties: { ...properties, steps: { ...steps, items } } }
}
