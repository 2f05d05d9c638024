/** The tool `web_search` of a run whose application brings the search. What it gives is untrusted text. */

import { CaissonError } from '#specs/errors.ts'
import {
  renderSearch,
  WebSearchInput,
  webSearchDescription,
  webSearchTrust,
} from '#specs/node/task-tools/web-search.ts'
import { WebSearchAnswer } from '#specs/protocol/egress.ts'
import type { ApplicationTools } from '../environment/tool-set.ts'

export interface WebSearchResult {
  readonly title: string
  readonly url: string
  readonly snippet: string
}

/** Searches the web; what it throws is the call's failure. `count`: results at most, from 1 to 20. */
export type WebSearchFunction = (
  query: string,
  context: { readonly count: number; readonly signal: AbortSignal },
) => Promise<readonly WebSearchResult[]> | readonly WebSearchResult[]

const toolName = 'web_search'

/** @throws {CaissonError} `invalid_options` where the application has a tool of this name */
export function withWebSearch(tools: ApplicationTools, search: WebSearchFunction): ApplicationTools {
  if (Object.hasOwn(tools, toolName))
    throw new CaissonError(
      'invalid_options',
      `the tool name ${toolName} is reserved with webSearch; take another`,
    )
  return {
    ...tools,
    [toolName]: {
      description: `${webSearchDescription} ${webSearchTrust}`,
      parameters: WebSearchInput,
      readOnly: true,
      execute: async (input, { signal }) => {
        const { query, count } = WebSearchInput.parse(input)
        const found = await search(query, { count, signal })
        const answer = WebSearchAnswer.safeParse({
          results: Array.isArray(found) ? found.slice(0, count) : found,
        })
        if (!answer.success)
          throw new Error(
            'the search gave results of another form; expected a list of title, url and snippet',
          )
        return renderSearch(answer.data)
      },
    },
  }
}
