// The documented HTTP forms of the search providers, spoken by a server of the test.
import type { IncomingMessage, RequestListener } from 'node:http'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { WebSearchAnswer } from '#specs/protocol/egress.ts'
import type { SearchConfig } from '../../config/schema.ts'
import { openWeb, type TestWebOptions } from './support.ts'

const { signal } = new AbortController()
const key = 'BSA-0123456789abcdef'

interface Seen {
  readonly method: string | undefined
  readonly url: URL
  readonly headers: IncomingMessage['headers']
  readonly body: string
}

async function open(
  make: (url: string) => SearchConfig,
  answer: { status?: number; body: unknown },
  more: Partial<TestWebOptions> = {},
) {
  const seen: Seen[] = []
  const plain: RequestListener = (request, response) => {
    void text(request).then((body) => {
      const url = new URL(request.url ?? '', 'http://search.test')
      seen.push({ method: request.method, url, headers: request.headers, body })
      response.writeHead(answer.status ?? 200, { 'content-type': 'application/json' })
      response.end(typeof answer.body === 'string' ? answer.body : JSON.stringify(answer.body))
    })
  }
  const test = await openWeb({
    servers: [{ plain }],
    search: ([port]) => make(`http://127.0.0.1:${port}`),
    env: { SEARCH_KEY: key },
    ...more,
  })
  const search = (query: string, count?: number) =>
    test.web.search({ query, ...(count === undefined ? {} : { count }) }, signal)
  return { ...test, seen, search }
}

const from = { env: 'SEARCH_KEY' }
const configs = {
  searxng: (url: string): SearchConfig => ({ provider: 'searxng', url }),
  brave: (url: string): SearchConfig => ({ provider: 'brave', key: from, url: `${url}/res/v1/web/search` }),
  tavily: (url: string): SearchConfig => ({ provider: 'tavily', key: from, url: `${url}/search` }),
}

describe('a search', () => {
  it('asks SearXNG for JSON, at its address with or without a path [S1.04]', async () => {
    const body = {
      query: 'tides',
      number_of_results: 2,
      results: [
        {
          url: 'https://a.test/',
          title: 'A &amp; B',
          content: 'about <b>tides</b>',
          engine: 'x',
          score: 1.2,
        },
        { url: 'https://b.test/', title: 'B', content: null, engines: ['x'] },
      ],
      answers: [],
      suggestions: [],
    }
    for (const path of ['', '/', '/search', '/searx/']) {
      const test = await open((url) => configs.searxng(url + path), { body })
      expect(await test.search('tides & moons', 1)).toEqual({
        ok: true,
        value: { results: [{ title: 'A & B', url: 'https://a.test/', snippet: 'about tides' }] },
      })
      const [asked] = test.seen
      expect(asked?.url.pathname).toBe(path === '/searx/' ? '/searx/search' : '/search')
      expect(Object.fromEntries(asked?.url.searchParams ?? [])).toEqual({
        q: 'tides & moons',
        format: 'json',
      })
      expect(test.records).toMatchObject([{ kind: 'search', rule: expect.stringContaining('SearXNG') }])
    }
  })

  it('asks Brave with the key in its header, within its bounds [S1.04]', async () => {
    const results = [{ title: 'A', url: 'https://a.test/', description: 'it&#x27;s &lt;b&gt;' }]
    const test = await open(configs.brave, {
      body: { type: 'search', query: {}, web: { type: 'search', results } },
    })
    const long = Array.from({ length: 80 }, (_, index) => `word${index}`).join(' ')
    expect(await test.search(long, 5)).toEqual({
      ok: true,
      value: { results: [{ title: 'A', url: 'https://a.test/', snippet: "it's <b>" }] },
    })
    const [asked] = test.seen
    expect(asked?.headers).toMatchObject({ 'x-subscription-token': key, accept: 'application/json' })
    expect(asked?.url.pathname).toBe('/res/v1/web/search')
    expect(asked?.url.searchParams.get('count')).toBe('5')
    expect(asked?.url.searchParams.get('q')?.split(' ')).toHaveLength(50)
  })

  it('takes an answer of Brave without results for none', async () => {
    const test = await open(configs.brave, { body: { type: 'search', query: {} } })
    expect(await test.search('x')).toEqual({ ok: true, value: { results: [] } })
  })

  it('asks Tavily with its JSON and the key as a bearer [S1.04]', async () => {
    const results = [{ title: 'A', url: 'https://a.test/', content: 'text', score: 0.9, raw_content: null }]
    const test = await open(configs.tavily, {
      body: { query: 'x', answer: null, images: [], results, response_time: 1 },
    })
    expect(await test.search('tides', 3)).toMatchObject({
      ok: true,
      value: { results: [{ snippet: 'text' }] },
    })
    const [asked] = test.seen
    expect(asked).toMatchObject({ method: 'POST', headers: { authorization: `Bearer ${key}` } })
    expect(JSON.parse(asked?.body ?? '')).toMatchObject({ query: 'tides', max_results: 3 })
  })

  it('says how to configure it where it is not, or not well', async () => {
    const test = await openWeb({ servers: [] })
    expect(await test.web.search({ query: 'x' }, signal)).toMatchObject({
      ok: false,
      error: {
        status: 400,
        code: 'not_configured',
        message: expect.stringMatching(/config\.toml.*\[search\]/),
      },
    })
    const wrong: SearchConfig[] = [
      { provider: 'searxng', url: 'nonsense' },
      { provider: 'searxng', url: 'https://user:pw@s.test/' },
      { provider: 'brave', key: from, url: 'http://search.test/' },
      { provider: 'tavily', key: { env: 'MISSING' } },
    ]
    for (const search of wrong) {
      const other = await openWeb({ servers: [], search: () => search })
      const answer = await other.web.search({ query: 'x' }, signal)
      expect(answer).toMatchObject({ ok: false, error: { code: 'not_configured' } })
    }
  })

  it.each([
    [
      'a server without its JSON form',
      configs.searxng,
      403,
      '<h1>Forbidden</h1>',
      'not_configured',
      'search.formats',
    ],
    [
      'a key that Brave does not know',
      configs.brave,
      422,
      { type: 'ErrorResponse', error: { detail: 'invalid token' } },
      'not_configured',
      'invalid token',
    ],
    [
      'a key that Tavily does not know',
      configs.tavily,
      401,
      { detail: { error: 'Unauthorized: missing or invalid API key.' } },
      'not_configured',
      'invalid API key',
    ],
    ["a plan's end", configs.tavily, 432, { detail: { error: 'usage limit' } }, 'not_configured', 'limit'],
    ['too many searches', configs.brave, 429, {}, 'limit_concurrency', 'wait'],
    ['a redirect, which is not followed', configs.brave, 302, '', 'upstream_broken', '302'],
    ['a page in the place of JSON', configs.searxng, 200, '<html>', 'upstream_broken', 'documented form'],
    [
      'results of another form',
      configs.tavily,
      200,
      { results: [{ url: 1 }] },
      'upstream_broken',
      'documented form',
    ],
  ] as const)('says what to do about %s', async (_, make, status, body, code, words) => {
    const test = await open(make, { status, body })
    const answer = await test.search('x')
    expect(answer).toMatchObject({ ok: false, error: { code, message: expect.stringContaining(words) } })
    expect(test.seen).toHaveLength(1)
    expect(test.records).toMatchObject([{ kind: 'search', error: expect.any(String) }])
  })

  it('lets neither the key nor an address that is none through to the guest [G.01]', async () => {
    const results = [
      { title: `your key is ${key}`, url: 'https://a.test/', description: key },
      { title: 'x', url: 'javascript:alert(1)', description: 'x' },
    ]
    const test = await open(configs.brave, { body: { web: { results } } })
    const answer = await test.search('x')
    expect(JSON.stringify(answer)).not.toContain(key)
    expect(JSON.stringify(test.records)).not.toContain(key)
    expect(answer.ok && answer.value.results).toHaveLength(1)
    const refused = await open(configs.brave, { status: 401, body: { error: { detail: `bad ${key}` } } })
    expect(JSON.stringify(await refused.search('x'))).not.toContain(key)
  })

  it('keeps any answer within the bounds of the protocol', async () => {
    const results = Array.from({ length: 100 }, (_, index) => ({
      url: `https://a.test/${index}`,
      title: 't'.repeat(10_000),
      content: '<b>x'.repeat(6_000),
    }))
    const test = await open(configs.searxng, { body: { results } })
    const answer = await test.search('x', 20)
    expect(answer.ok && WebSearchAnswer.parse(answer.value).results).toHaveLength(20)
  })
})
