import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type EmbeddingsAnswer, EmbeddingsRequest } from '#specs/protocol/embeddings.ts'
import { type CodeSearchOptions, createCodeSearch } from '../../search/code-search.ts'
import { fuseRankings, nearness, Vectors } from '../../search/vectors.ts'
import type { GatewayClient } from '../../tool-calls/gateway-client.ts'
import { toolFailure } from '../../tool-calls/tool.ts'
import type { CodeSearchResult } from '../../tools/search-code.ts'
import { makeTask, silentLogger } from '../support/run.ts'
import { call } from '../support/tools.ts'
import { temporaryFolder } from '../support/trees.ts'

/** Words that mean the same share a place; whatever else there is has none. */
const places = [
  ['cat', 'kitten', 'feline'],
  ['car', 'vehicle', 'automobile'],
  ['money', 'budget', 'price'],
]

/** Vectors as a host gives them; what was asked stands in `asked`. */
function someHost(asked: EmbeddingsRequest[] = []): Pick<GatewayClient, 'post'> {
  return {
    post: async (path, body, schema) => {
      expect(path).toBe('/v1/embeddings')
      const request = EmbeddingsRequest.parse(body)
      asked.push(request)
      const data = request.input.map((text) => ({
        embedding: [0.01, ...places.map((words) => words.filter((word) => text.includes(word)).length)],
      }))
      return {
        ok: true,
        value: schema.parse({ data, usage: { prompt_tokens: 1 } } satisfies EmbeddingsAnswer),
      }
    },
  }
}

async function prepare(
  files: Readonly<Record<string, string>>,
  options: CodeSearchOptions = {},
  model = 'some/embed',
) {
  const folder = temporaryFolder()
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(folder.path, path)), { recursive: true })
    writeFileSync(join(folder.path, path), content)
  }
  const search = createCodeSearch(options)
  const opened = await search.extension({
    task: makeTask(model === '' ? {} : { embeddingModel: model }),
    host: {
      runHook: () => Promise.reject(new Error('nobody is asked')),
      callTool: () => Promise.reject(new Error('nobody is asked')),
      requestApproval: () => Promise.reject(new Error('nobody is asked')),
      note: () => Promise.resolve(),
    },
    taken: new Set(),
    signal: new AbortController().signal,
    logger: silentLogger,
  })
  const tool = search.toolOver({ root: folder.path })
  const tryIt = (query: string, more: object = {}) => call(tool, { query, by: 'meaning', ...more })
  const ask = async (query: string, more: object = {}): Promise<CodeSearchResult> => {
    const result = await tryIt(query, more)
    if (!result.ok) throw new Error(`${result.error.code} ${result.error.message}`)
    return result.value as CodeSearchResult
  }
  return { ask, tryIt, opened, [Symbol.dispose]: () => folder[Symbol.dispose]() }
}

describe('a search by meaning', () => {
  it('finds what has none of the words, and puts what has both first [S0.14]', async () => {
    const files = {
      'a.txt': 'a kitten sleeps',
      'b.txt': 'a vehicle drives',
      'c.txt': 'the cat drives',
      'd.txt': 'nothing',
    }
    using space = await prepare(files, { gateway: someHost() })
    const { passages, files: count } = await space.ask('cat')
    expect(passages.map(({ path }) => path).slice(0, 2)).toEqual(['c.txt', 'a.txt'])
    expect(count).toBe(4)
  })

  it('asks for each text once in a run, in batches, and only for what changed [S0.14]', async () => {
    const asked: EmbeddingsRequest[] = []
    const files = Object.fromEntries(
      Array.from({ length: 40 }, (_, file) => [`${file}.txt`, `text ${file} of a cat`]),
    )
    using space = await prepare(files, { gateway: someHost(asked) })
    await space.ask('kitten')
    expect(asked.map(({ input, input_type }) => [input.length, input_type])).toEqual([
      [1, 'query'],
      [16, 'passage'],
      [16, 'passage'],
      [8, 'passage'],
    ])
    await space.ask('kitten')
    expect(asked).toHaveLength(4)
    await space.ask('feline')
    expect(asked).toHaveLength(5)
  })

  it('in a large workspace is of what words find, and says so [S0.14]', async () => {
    const asked: EmbeddingsRequest[] = []
    const many = Object.fromEntries(
      Array.from({ length: 300 }, (_, file) => [`d/${file}.txt`, `vehicle ${file}`]),
    )
    using space = await prepare(
      { ...many, 'e/a.txt': 'a cat and money', 'e/b.txt': 'cat', 'e/c.txt': 'kitten' },
      { gateway: someHost(asked) },
    )
    const { passages, notes } = await space.ask('cat')
    expect(passages.map(({ path }) => path).sort()).toEqual(['e/a.txt', 'e/b.txt'])
    expect(notes.join()).toContain('only the 2 passages')
    expect(asked.flatMap(({ input }) => input)).toHaveLength(3)
    const below = await space.ask('cat', { path: 'e' })
    expect(below.passages.map(({ path }) => path)).toContain('e/c.txt')
    expect(below.notes).toEqual([])
  })

  it('is refused with what to set where no model is configured, and after the run [S0.14]', async () => {
    const error = { code: 'unavailable', message: expect.stringContaining('[embeddings]') }
    using space = await prepare({ 'a.txt': 'cat' }, { gateway: someHost() }, '')
    expect(await space.tryIt('cat')).toMatchObject({ ok: false, error })
    expect(await space.tryIt('cat', { by: 'words' })).toMatchObject({ ok: true })
    using other = await prepare({ 'a.txt': 'cat' }, { gateway: someHost() })
    expect(await other.tryIt('cat')).toMatchObject({ ok: true })
    await other.opened?.close()
    expect(await other.tryIt('cat')).toMatchObject({ ok: false, error })
  })

  it('fails as the host says, and what was made until then is kept [S0.14]', async () => {
    let left = 2
    const asked: EmbeddingsRequest[] = []
    const host = someHost(asked)
    const gateway: Pick<GatewayClient, 'post'> = {
      post: async (...request) =>
        left-- > 0 ? await host.post(...request) : toolFailure('limit_reached', 'the budget is used up'),
    }
    const files = Object.fromEntries(Array.from({ length: 20 }, (_, file) => [`${file}.txt`, `cat ${file}`]))
    using space = await prepare(files, { gateway })
    expect(await space.tryIt('cat')).toMatchObject({ ok: false, error: { code: 'limit_reached' } })
    left = 1
    expect(await space.tryIt('cat')).toMatchObject({ ok: true })
    expect(asked.map(({ input }) => input.length)).toEqual([1, 16, 4])
  })
})

describe('vectors', () => {
  it('are compared by direction, and hostile ones are near to nothing [S0.14, T.02]', async () => {
    const odd = [[0, 0], [3, 4], [-3, -4], [1e308, 1e308], [1.7e308, 1.7e308], [1]]
    const vectors = new Vectors({
      post: async (_, body, schema) => {
        const { input } = EmbeddingsRequest.parse(body)
        const data = input.map((_text, index) => ({ embedding: odd[index] ?? [1] }))
        return { ok: true, value: schema.parse({ data, usage: { prompt_tokens: 1 } }) }
      },
    })
    const made = await vectors.of(
      ['zero', 'one', 'other way', 'huge', 'beyond', 'short'],
      'passage',
      new AbortController().signal,
    )
    if (!made.ok) throw new Error(made.error.message)
    const [, one] = made.value
    if (one === undefined) throw new Error('no vector')
    expect(made.value.map((vector) => Math.round(nearness(one, vector) * 1e6) / 1e6)).toEqual([
      0, 1, -1, 0.98995, 0, 0,
    ])
  })

  it('rankings are put into one that has each item once, the common favorite first [S0.14]', () => {
    expect(
      fuseRankings([
        ['a', 'b', 'c'],
        ['c', 'b'],
      ]),
    ).toEqual(['c', 'b', 'a'])
    fc.assert(
      fc.property(fc.array(fc.uniqueArray(fc.nat(20)), { maxLength: 4 }), (rankings) => {
        const fused = fuseRankings(rankings)
        expect(new Set(fused)).toEqual(new Set(rankings.flat()))
        expect(fused).toHaveLength(new Set(fused).size)
        const first = rankings[0]?.[0]
        if (first !== undefined && rankings.every((ranking) => ranking[0] === first))
          expect(fused[0]).toBe(first)
      }),
      { numRuns: 300, seed: 14 },
    )
  })
})
