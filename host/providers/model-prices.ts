/**
 * Prices of models in US dollars per million tokens, by kind of server and id. A table with a date: prices change, so what
 * the configuration says wins, and a model that is not here has no price.
 */
import type { ServerKindName } from '#specs/node/model-protocols/server-kinds.ts'
import type { PriceConfig } from '../config/schema.ts'
import { longestMatch } from './model-choice.ts'

/** Standard prices; where a provider has a higher one for long requests, `above` has it. */
const prices: Readonly<Partial<Record<ServerKindName, Readonly<Record<string, PriceConfig>>>>> = {
  // models.dev, providers/anthropic, checked there on 2026-10-03 against platform.claude.com/docs.
  anthropic: {
    'claude-opus-5-5*': { input: 4, output: 20, cachedInput: 0.2, cacheWrite: 5 },
    'claude-sonnet-5-5*': { input: 2, output: 10, cachedInput: 0.1, cacheWrite: 2.5 },
    'claude-haiku-4-5*': { input: 1, output: 5, cachedInput: 0.1, cacheWrite: 1.25 },
  },
  // models.dev, providers/openai, as of 2026-10.
  openai: {
    'gpt-6-astra': {
      ...{ input: 10, output: 50, cachedInput: 1, cacheWrite: 12.5 },
      above: { tokens: 272_000, input: 20, output: 75, cachedInput: 2, cacheWrite: 25 },
    },
    'gpt-5.6': {
      ...{ input: 2, output: 10, cachedInput: 0.2, cacheWrite: 2.5 },
      above: { tokens: 272_000, input: 4, output: 15, cachedInput: 0.4, cacheWrite: 5 },
    },
  },
  // models.dev, providers/google, as of 2026-10. Gemini 3.8 Flash costs half until the end of 2026; this is the later price.
  google: {
    'gemini-3.8-flash': { input: 1.5, output: 7.5, cachedInput: 0.15 },
    'gemini-3.1-pro-preview': {
      ...{ input: 2, output: 12, cachedInput: 0.2 },
      above: { tokens: 200_000, input: 4, output: 18, cachedInput: 0.4 },
    },
  },
  // models.dev, providers/xai, as of 2026-10.
  xai: {
    'grok-4.7': {
      ...{ input: 2, output: 6, cachedInput: 0.5 },
      above: { tokens: 200_000, input: 4, output: 12, cachedInput: 1 },
    },
  },
}

/** @param configured prices of the configuration, which win. @returns undefined for an unknown price */
export function findPrice(
  kind: ServerKindName,
  model: string,
  configured: Readonly<Record<string, PriceConfig>>,
): PriceConfig | undefined {
  const own = longestMatch(Object.keys(configured), model)
  if (own !== undefined) return configured[own]
  // What a model costs on a machine of the user's own, nobody knows here.
  const known = prices[kind] ?? {}
  const pattern = longestMatch(Object.keys(known), model)
  return pattern === undefined ? undefined : known[pattern]
}
