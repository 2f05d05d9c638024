/** The search of a run whose model is the offline one and that has no provider: fixed results that say what they are. */
import type { WebSearchAnswer, WebSearchRequest } from '#specs/protocol/egress.ts'
import { limits } from '#specs/protocol/limits.ts'

const resultCount = 3
const what = 'Demonstration result: no search was made, and nothing was sent.'
const remedy = 'Set [search] in config.toml to search the web.'

/** @returns at most three results, the same for the same query; their addresses lead nowhere (RFC 2606) */
export function searchDemonstration({ query, count = resultCount }: WebSearchRequest): WebSearchAnswer {
  const words = encodeURIComponent(query.toWellFormed().slice(0, 200))
  const results = Array.from({ length: Math.min(count, resultCount) }, (_, index) => ({
    title: `[demonstration ${index + 1}] ${query}`.slice(0, limits.lineMaxChars).toWellFormed(),
    url: `https://search-demonstration.example/${index + 1}?q=${words}`,
    snippet: `${what} ${remedy}`,
  }))
  return { results }
}
