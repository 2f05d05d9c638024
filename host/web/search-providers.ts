/**
 * How each search provider is asked and answers, from its documentation: SearXNG's search API (docs.searxng.org,
 * dev/search_api), Brave's Web Search API (api-dashboard.search.brave.com), Tavily's Search (docs.tavily.com).
 */
import * as z from 'zod'
import type { WebSearchAnswer } from '#specs/protocol/egress.ts'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { SearchConfig } from '../config/schema.ts'
import type { KeySource } from '../keys/key-source.ts'

interface SearchRequest {
  readonly method: 'GET' | 'POST'
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string
}

export interface SearchProvider {
  readonly name: string
  /** Without the query; for people. */
  readonly url: string
  /** Null for one that wants none. */
  readonly key: KeySource | null
  build(query: string, count: number, key: string): SearchRequest
  /** Null when the value is not of the documented form. */
  read(value: unknown): WebSearchAnswer['results'] | null
  /** The provider's own words in an error. */
  readError(value: unknown): string | undefined
  /** By status: what the user has to do. */
  readonly remedies: Readonly<Record<number, string>>
}

const braveUrl = 'https://api.search.brave.com/res/v1/web/search'
const tavilyUrl = 'https://api.tavily.com/search'
/** Brave refuses longer queries. */
const braveMaxChars = 400
const braveMaxWords = 50

/** @returns an error in words for an address that is none */
export function readProvider(config: SearchConfig): Result<SearchProvider, string> {
  const written = config.url ?? (config.provider === 'brave' ? braveUrl : tavilyUrl)
  const url = URL.canParse(written) ? new URL(written) : null
  if (url === null || !/^https?:$/.test(url.protocol) || url.username !== '' || url.search !== '') {
    return {
      ok: false,
      error: `search.url in the configuration is not an http or https address without user and query.`,
    }
  }
  if (config.provider !== 'searxng' && url.protocol === 'http:' && !isLoopback(url.hostname)) {
    return {
      ok: false,
      error: `search.url in the configuration uses plain http, in which the key could be read; use https.`,
    }
  }
  if (config.provider === 'searxng') return { ok: true, value: searxng(url) }
  const make = config.provider === 'brave' ? brave : tavily
  return { ok: true, value: make(url, config.key) }
}

function searxng(base: URL): SearchProvider {
  const url = base.href.replace(/\/*(?:search)?\/*$/, '/search')
  const Answer = z.looseObject({
    results: z.array(
      z.looseObject({ url: z.string(), title: z.string().nullish(), content: z.string().nullish() }),
    ),
  })
  return {
    name: 'SearXNG',
    url,
    key: null,
    build: (query) => ({
      method: 'GET',
      url: `${url}?${new URLSearchParams({ q: query, format: 'json' })}`,
      headers: {},
    }),
    read: (value) => {
      const answer = Answer.safeParse(value)
      return answer.success
        ? toResults(answer.data.results.map((one) => [one.title, one.url, one.content]))
        : null
    },
    readError: () => undefined,
    remedies: {
      403: 'the user has to add json to search.formats in the settings of that server',
    },
  }
}

function brave({ href }: URL, key: KeySource): SearchProvider {
  const Answer = z.looseObject({
    web: z
      .looseObject({
        results: z.array(
          z.looseObject({ url: z.string(), title: z.string().nullish(), description: z.string().nullish() }),
        ),
      })
      .optional(),
  })
  const Failure = z.looseObject({ error: z.looseObject({ detail: z.string() }) })
  return {
    name: 'Brave',
    url: href,
    key,
    build: (query, count, secret) => {
      const words = query
        .split(/\s+/)
        .slice(0, braveMaxWords)
        .join(' ')
        .slice(0, braveMaxChars)
        .toWellFormed()
      const asked = { q: words, count: String(count), text_decorations: 'false', result_filter: 'web' }
      return {
        method: 'GET',
        url: `${href}?${new URLSearchParams(asked)}`,
        headers: { 'x-subscription-token': secret },
      }
    },
    read: (value) => {
      const answer = Answer.safeParse(value)
      // Without results the part `web` is left out.
      if (!answer.success) return null
      return toResults((answer.data.web?.results ?? []).map((one) => [one.title, one.url, one.description]))
    },
    readError: (value) => Failure.safeParse(value).data?.error.detail,
    remedies: keyRemedies,
  }
}

function tavily({ href }: URL, key: KeySource): SearchProvider {
  const Answer = z.looseObject({
    results: z.array(
      z.looseObject({ url: z.string(), title: z.string().nullish(), content: z.string().nullish() }),
    ),
  })
  const Failure = z.looseObject({ detail: z.union([z.string(), z.looseObject({ error: z.string() })]) })
  return {
    name: 'Tavily',
    url: href,
    key,
    build: (query, count, secret) => ({
      method: 'POST',
      url: href,
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      body: JSON.stringify({ query, max_results: count, search_depth: 'basic', include_answer: false }),
    }),
    read: (value) => {
      const answer = Answer.safeParse(value)
      return answer.success
        ? toResults(answer.data.results.map((one) => [one.title, one.url, one.content]))
        : null
    },
    readError: (value) => {
      const detail = Failure.safeParse(value).data?.detail
      return typeof detail === 'string' ? detail : detail?.error
    },
    remedies: { ...keyRemedies, 432: planRemedy, 433: planRemedy },
  }
}

const keyRemedies = {
  401: "the provider does not accept the user's key",
  403: "the user's key may not be used for this",
  422: "the provider does not accept the user's key, or the query",
}
const planRemedy = "the limit of the user's plan is reached"

type Found = readonly [title: string | null | undefined, url: string, snippet: string | null | undefined]

/** Results with an address of the web, bounded; marks of HTML in titles and texts are taken away. */
function toResults(found: readonly Found[]): WebSearchAnswer['results'] {
  return found
    .filter(([, url]) => /^https?:\/\//i.test(url) && url.length <= 4_096)
    .slice(0, 20)
    .map(([title, url, snippet]) => ({
      title: plainText(title ?? '')
        .slice(0, limits.lineMaxChars)
        .toWellFormed(),
      url: url.toWellFormed(),
      snippet: plainText(snippet ?? '')
        .slice(0, 2_000)
        .toWellFormed(),
    }))
}

function plainText(text: string): string {
  return text
    .slice(0, limits.textMaxChars)
    .replaceAll(/<\/?[a-z][^<>]{0,200}>/gi, '')
    .replaceAll(/&(amp|lt|gt|quot|#39|#x27|nbsp);/g, (mark) => entities[mark] ?? mark)
    .replaceAll(/\s+/g, ' ')
    .trim()
}

const entities: Readonly<Record<string, string>> = {
  '&amp;': '&',
  '&lt;': '<',
  '&gt;': '>',
  '&quot;': '"',
  '&#39;': "'",
  '&#x27;': "'",
  '&nbsp;': ' ',
}

function isLoopback(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || hostname.startsWith('127.')
}
