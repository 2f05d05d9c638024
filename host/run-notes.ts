/** Options of a run that have no effect with its model: what a person should know before it begins. */
import { capabilitiesOf } from '#specs/node/provider-quirks/capabilities.ts'
import type { ProviderChoice } from './providers/providers.ts'

/** What was asked for besides the model. */
export interface AskedOfModel {
  readonly hasImages: boolean
  /** Options of the run, without what the configuration says. */
  readonly effort?: string | undefined
  readonly fallback?: readonly string[] | undefined
  /** Absent too where another model of the run may cost something. */
  readonly maxCostUsd?: number | undefined
  /** The servers of `fallback`. */
  readonly fallbacks: readonly Pick<ProviderChoice, 'model' | 'baseUrl'>[]
}

/** Options that have no effect with its model; one sentence or two each. */
export function notesOnOptions(choice: ProviderChoice, asked: AskedOfModel): readonly string[] {
  return [...describeImages(choice, asked), ...describeVoid(choice, asked)]
}

function describeImages(
  { model, baseUrl, maxImages = capabilitiesOf(model).maxImages }: ProviderChoice,
  { hasImages }: AskedOfModel,
): string[] {
  if (!hasImages || maxImages > 0) return []
  if (baseUrl === null)
    return ['The offline model does not see images; name a model that does (option model).']
  return [
    `As far as is known, ${model} does not see images: in place of each it gets a note with format and size. Choose another ` +
      `model (option model), or if this one sees, set models."${model}".maxImages in the configuration.`,
  ]
}

function describeVoid({ model, baseUrl }: ProviderChoice, asked: AskedOfModel): string[] {
  if (baseUrl === null) {
    const given = (['effort', 'fallback'] as const).filter((name) => asked[name] !== undefined)
    return [
      ...given.map((name) => `The offline model answers, so option ${name} has no effect.`),
      ...(asked.maxCostUsd === undefined
        ? []
        : ['The offline model costs nothing, so option limits.maxCostUsd has no effect.']),
    ]
  }
  const isOwn = asked.fallbacks.some((other) => other.model === model && other.baseUrl === baseUrl)
  return isOwn ? [`The fallback ${model} is the model of the run itself, so it has no effect.`] : []
}
