/** A model's capabilities: those of its family, defaults for others, and what its server has reported, which wins. */
import { familyOf, type ModelCapabilities, unknownModel } from './model-families.ts'
import type { OptionalField } from './rejection.ts'

/** What one server reported about one model, mostly by rejecting requests. Absent: nothing. */
export interface ServerReport {
  /** Optional fields that it rejected. */
  readonly refusedFields?: readonly OptionalField[] | undefined
  readonly contextTokens?: number | undefined
  readonly maxOutputTokens?: number | undefined
  /** Images of a request that it takes. */
  readonly maxImages?: number | undefined
  /** It accepts only one call per turn. */
  readonly singleCalls?: boolean | undefined
  /** It requires the model's reasoning with the calls that it led to. */
  readonly needsReasoning?: boolean | undefined
  /** It refused tools; a later answer overrides this. */
  readonly refusedTools?: boolean | undefined
  /** It reported that the model does not exist, for this key or at all. */
  readonly isGone?: boolean | undefined
}

/** @param report overrides the table */
export function capabilitiesOf(model: string, report: ServerReport = {}): ModelCapabilities {
  const { contextTokens, maxOutputTokens, maxImages, singleCalls } = report
  return {
    ...unknownModel,
    ...familyOf(model)?.capabilities,
    ...(contextTokens === undefined ? {} : { contextTokens }),
    ...(maxOutputTokens === undefined ? {} : { maxOutputTokens }),
    ...(maxImages === undefined ? {} : { maxImages }),
    ...(singleCalls === true ? { parallelCalls: false } : {}),
  }
}

/** Both reports; the later one replaces the fields that it has. */
export function mergeReports(before: ServerReport = {}, later: ServerReport): ServerReport {
  const fields = [...new Set([...(before.refusedFields ?? []), ...(later.refusedFields ?? [])])]
  return { ...before, ...later, ...(fields.length === 0 ? {} : { refusedFields: fields }) }
}
