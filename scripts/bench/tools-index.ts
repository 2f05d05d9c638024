/**
 * Cost of the `search_code` index over 10,000 code files: building it compared with only walking and reading the
 * files, and a search (which checks every file) compared with that check alone.
 */
import { lstatSync, readdirSync, readFileSync } from 'node:fs'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createCodeSearch } from '../../agent/search/code-search.ts'
import { IndexMemoryBudget } from '../../agent/search/index-memory-budget.ts'
import { type CodeSearchResult, searchCodeName } from '../../agent/tools/search-code.ts'
import type { Figures } from './bench.ts'
import { figureOf, repeats, reportProgress, round } from './figures.ts'

const folderCount = repeats(200)
const filesPerFolder = 50
const rounds = repeats(3)
const searches = repeats(60)

export async function measureIndex(): Promise<Figures> {
  reportProgress(`an index over ${folderCount * filesPerFolder} files`)
  const root = await mkdtemp(join(tmpdir(), 'caisson-bench-'))
  try {
    const bytes = await makeCode(root)
    const found = {
      index: [] as number[],
      floor: [] as number[],
      search: [] as number[],
      look: [] as number[],
    }
    let indexBytes = 0
    for (let round = 0; round < rounds; round++) {
      found.floor.push(await timed(() => walk(root, (path) => readFileSync(path).length)))
      const room = new IndexMemoryBudget()
      const search = createCodeSearch({ room })
      const tool = search.toolOver({ root })
      const ask = async (query: string): Promise<void> => {
        const input = tool.inputSchema.parse({ query })
        const result = await tool.execute(input, {
          signal: new AbortController().signal,
          emitOutput: () => undefined,
        })
        if (!result.ok) throw new Error(`${searchCodeName}: ${result.error.message}`)
        const { passages, files, notes } = result.value as CodeSearchResult
        if (passages.length === 0 || files !== folderCount * filesPerFolder || notes.length > 0)
          throw new Error(
            `${searchCodeName} of ${query}: ${passages.length} passages of ${files} files, ${notes.join()}`,
          )
      }
      found.index.push(await timed(() => ask('parse request header')))
      indexBytes = room.takenBytes
      for (let count = 0; count < searches / rounds; count++) {
        found.look.push(await timed(() => walk(root, (path) => lstatSync(path).size)))
        found.search.push(await timed(() => ask(queryOf(round * searches + count))))
      }
    }
    const [indexMs, indexFloorMs] = [figureOf(found.index), figureOf(found.floor)]
    return {
      indexMs,
      indexFloorMs,
      indexOverFloor: round(indexMs.p50 / indexFloorMs.p50),
      indexedMiB: round(bytes / 1024 ** 2),
      indexMiB: round(indexBytes / 1024 ** 2),
      searchMs: figureOf(found.search),
      searchFloorMs: figureOf(found.look),
    }
  } finally {
    await rm(root, { recursive: true })
  }
}

async function timed(action: () => unknown): Promise<number> {
  const started = performance.now()
  await action()
  return performance.now() - started
}

function walk(folder: string, onFile: (path: string) => number): void {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name)
    if (entry.isDirectory()) walk(path, onFile)
    else onFile(path)
  }
}

/** The same numbers from 0 up to 1 each time. */
function numbersFrom(seed: number): () => number {
  let state = seed
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return state / 2 ** 32
  }
}

const stems =
  'parse read write open close send get set make find check build load store merge split render count bound request answer header body file path line word token budget limit stream event model tool call plan step run task agent host guest buffer queue timer signal error result value index key cache session channel frame message policy rule secret journal digest lock folder image template memory disk port'.split(
    ' ',
  )
const syllables = 'ba de ki lo mu na po ri su ta ve xi zo qua fer lin mor tan gel'.split(' ')

/** A term distributed as in code: a few are everywhere, most are rare. */
function wordOf(number: () => number): string {
  const rank = Math.floor(number() ** 4 * 12_000)
  const stem = stems[rank]
  if (stem !== undefined) return stem
  let word = ''
  for (let rest = rank; rest > 0; rest = Math.floor(rest / syllables.length))
    word += syllables[rest % syllables.length]
  return word
}

const capital = (word: string): string => word.charAt(0).toUpperCase() + word.slice(1)

/** As in a repository, most used names occur elsewhere too. */
const names: string[] = []
const namesMaxCount = 9_000

function sharedName(number: () => number): string {
  const known = names[Math.floor(number() ** 3 * namesMaxCount)]
  if (known !== undefined) return known
  const name = newName(number)
  if (names.length < namesMaxCount) names.push(name)
  return name
}

function newName(number: () => number): string {
  const [first, second, third] = [wordOf(number), wordOf(number), wordOf(number)]
  return number() < 0.6 ? `${first}${capital(second)}` : `${first}${capital(second)}${capital(third)}`
}

/** About eighty lines like a module, which defines names and uses them again. */
function moduleOf(number: () => number): string {
  const own = Array.from({ length: 16 }, () => sharedName(number))
  const nameOf = () => own[Math.floor(number() ** 2 * own.length)] ?? ''
  const sentence = () => Array.from({ length: 6 + Math.floor(number() * 8) }, () => wordOf(number)).join(' ')
  const lines = Array.from(
    { length: 5 },
    () => `import { ${nameOf()} } from './${wordOf(number)}-${wordOf(number)}.ts'`,
  )
  for (let count = 4 + Math.floor(number() * 6); count > 0; count--) {
    const [name, argument, local] = [nameOf(), nameOf(), nameOf()]
    lines.push(
      '',
      `/** ${capital(sentence())}. */`,
      `export function ${name}(${argument}: ${capital(nameOf())}) {`,
    )
    lines.push(
      `  const ${local} = ${nameOf()}(${argument}.${wordOf(number)}, ${Math.floor(number() * 1_000)})`,
    )
    lines.push(`  if (${local} === undefined) return null`, `  // ${capital(sentence())}.`)
    lines.push(`  for (const ${wordOf(number)} of ${local}) {`, `    ${nameOf()}(${argument})`, '  }')
    lines.push(`  return ${nameOf()}(${local})`, '}')
  }
  return `${lines.join('\n')}\n`
}

/** @returns bytes of all of it */
async function makeCode(root: string): Promise<number> {
  const number = numbersFrom(14)
  let bytes = 0
  for (let folder = 0; folder < folderCount; folder++) {
    const path = join(root, `${wordOf(number)}-${folder}`)
    await mkdir(path)
    for (let file = 0; file < filesPerFolder; file++) {
      const text = moduleOf(number)
      bytes += text.length
      await writeFile(join(path, `${sharedName(number)}-${file}.ts`), text)
    }
  }
  return bytes
}

/** Two to four terms, sometimes a name. */
function queryOf(seed: number): string {
  const number = numbersFrom(seed)
  const words = Array.from({ length: 2 + (seed % 3) }, () => stems[Math.floor(number() * stems.length)])
  return seed % 4 === 0 ? `${words[0]}${capital(words[1] ?? '')}` : words.join(' ')
}
