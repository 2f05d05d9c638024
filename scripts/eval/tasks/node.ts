/** Programs in JavaScript: repairs, refactorings, renames over several files. */
import { allOf, type EvalTask, filesAre, nodeTest } from '../task.ts'

const slug = `export function slugOf(title) {
  return title.toLowerCase().replace(' ', '-').replace(/[^a-z-]/g, '')
}
`
const queue = `export class Queue {
  #running = 0
  #waiting = []

  constructor(limit) {
    this.limit = limit
  }

  async run(work) {
    if (this.#running > this.limit) await new Promise((resolve) => this.#waiting.push(resolve))
    this.#running += 1
    const result = await work()
    this.#running -= 1
    this.#waiting.shift()?.()
    return result
  }
}
`
const merge = `export function merge(target, source) {
  for (const key in source) {
    if (typeof source[key] === 'object') target[key] = merge(target[key], source[key])
    else target[key] = source[key]
  }
  return target
}
`
const callbacks = `import { readFile } from 'node:fs'

export function readNames(file, done) {
  readFile(file, 'utf8', (error, text) => {
    if (error) done(error)
    else done(null, text.split('\\n').filter((line) => line !== ''))
  })
}
`
const userModule = `export function getUsr(id) {
  return { id, name: 'user ' + id }
}
`
const listModule = `import { getUsr } from './user.mjs'

// getUsrs is another function and keeps its name.
export const getUsrs = (ids) => ids.map((id) => getUsr(id))
`
const cardModule = `import { getUsr as load } from './user.mjs'

export const card = (id) => load(id).name + ' [getUsr]'
`
const csvLine = `export function parseLine(line) {
  return line.split(',')
}
`

export const nodeTasks: readonly EvalTask[] = [
  {
    name: 'node-slug',
    tags: ['node'],
    difficulty: 'easy',
    prompt:
      'slugOf in slug.mjs should turn every run of characters that are not letters a-z or digits into one hyphen, without hyphens at the ends. Digits stay. Fix it.',
    files: { 'slug.mjs': slug },
    check: nodeTest(`
import { slugOf } from '../slug.mjs'
assert.equal(slugOf('Hello big World'), 'hello-big-world')
assert.equal(slugOf('  Top 10: A & B!  '), 'top-10-a-b')
assert.equal(slugOf('---'), '')`),
    solution: {
      'slug.mjs': `export function slugOf(title) {
  return title.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-|-$/g, '')
}
`,
    },
  },
  {
    name: 'node-queue',
    tags: ['node'],
    difficulty: 'hard',
    prompt:
      'Queue in queue.mjs should run at most `limit` pieces of work at once, in order. It runs one too many, and stops for good when work fails. Fix it.',
    files: { 'queue.mjs': queue },
    check: nodeTest(`
import { Queue } from '../queue.mjs'
const queue = new Queue(2)
let now = 0
let most = 0
const order = []
const work = (id) => async () => {
  order.push(id)
  most = Math.max(most, ++now)
  await new Promise((resolve) => setImmediate(resolve))
  now -= 1
  if (id % 2 === 1) throw new Error('no')
  return id
}
const ends = await Promise.allSettled([0, 1, 2, 3, 4, 5, 6, 7].map((id) => queue.run(work(id))))
assert.equal(most, 2)
assert.deepEqual(order, [0, 1, 2, 3, 4, 5, 6, 7])
assert.deepEqual(ends.map((end) => end.value ?? null), [0, null, 2, null, 4, null, 6, null])`),
    solution: {
      'queue.mjs': `export class Queue {
  #running = 0
  #waiting = []

  constructor(limit) {
    this.limit = limit
  }

  async run(work) {
    if (this.#running >= this.limit) await new Promise((resolve) => this.#waiting.push(resolve))
    else this.#running += 1
    try {
      return await work()
    } finally {
      const next = this.#waiting.shift()
      if (next) next()
      else this.#running -= 1
    }
  }
}
`,
    },
  },
  {
    name: 'node-merge',
    tags: ['node', 'safety'],
    difficulty: 'medium',
    prompt:
      'merge in merge.mjs should return a new object, deep for plain objects, with arrays and null replaced, and must not let the source change any prototype. Neither argument may change. Fix it.',
    files: { 'merge.mjs': merge },
    check: nodeTest(`
import { merge } from '../merge.mjs'
const left = { a: { b: 1 }, list: [1, 2, 3] }
const right = { a: { c: 2 }, list: [9], none: null, more: { deep: true } }
assert.deepEqual({ ...merge(left, right) }, { a: { b: 1, c: 2 }, list: [9], none: null, more: { deep: true } })
assert.deepEqual(left, { a: { b: 1 }, list: [1, 2, 3] })
merge({}, JSON.parse('{"__proto__": {"polluted": 1}, "constructor": {"prototype": {"polluted": 1}}}'))
assert.equal({}.polluted, undefined)`),
    solution: {
      'merge.mjs': `const isPlain = (value) => typeof value === 'object' && value !== null && !Array.isArray(value)

export function merge(target, source) {
  const merged = { ...target }
  for (const [key, value] of Object.entries(source)) {
    if (key === '__proto__') continue
    const old = Object.hasOwn(merged, key) ? merged[key] : undefined
    merged[key] = isPlain(value) ? merge(isPlain(old) ? old : {}, value) : value
  }
  return merged
}
`,
    },
  },
  {
    name: 'node-promises',
    tags: ['node', 'refactor'],
    difficulty: 'easy',
    prompt:
      'Change readNames in names.mjs from a callback to an async function that returns the names or rejects. Use node:fs/promises.',
    files: { 'names.mjs': callbacks },
    check: nodeTest(`
import { writeFileSync } from 'node:fs'
import { readNames } from '../names.mjs'
writeFileSync('.hidden-check/names.txt', 'ada\\n\\nbob\\n')
assert.equal(readNames.length, 1)
assert.deepEqual(await readNames('.hidden-check/names.txt'), ['ada', 'bob'])
await assert.rejects(readNames('.hidden-check/none.txt'), { code: 'ENOENT' })`),
    solution: {
      'names.mjs': `import { readFile } from 'node:fs/promises'

export async function readNames(file) {
  return (await readFile(file, 'utf8')).split('\\n').filter((line) => line !== '')
}
`,
    },
  },
  {
    name: 'node-rename',
    tags: ['node', 'refactor'],
    difficulty: 'medium',
    prompt:
      'Rename the function getUsr to findUser, and its file src/user.mjs to src/find-user.mjs, everywhere in src/. Texts in quotes that are shown to people, and other names, stay as they are.',
    files: { 'src/user.mjs': userModule, 'src/list.mjs': listModule, 'src/card.mjs': cardModule },
    check: allOf(
      filesAre({ 'src/user.mjs': null }),
      nodeTest(`
import { card } from '../src/card.mjs'
import { findUser } from '../src/find-user.mjs'
import * as list from '../src/list.mjs'
assert.deepEqual(Object.keys(list), ['getUsrs'])
assert.deepEqual(list.getUsrs([1]), [findUser(1)])
assert.equal(card(2), 'user 2 [getUsr]')`),
    ),
    solution: {
      'src/user.mjs': null,
      'src/find-user.mjs': userModule.replace('getUsr', 'findUser'),
      'src/list.mjs': listModule
        .replace('{ getUsr }', '{ findUser }')
        .replace('./user', './find-user')
        .replace('getUsr(id)', 'findUser(id)'),
      'src/card.mjs': cardModule.replace('{ getUsr', '{ findUser').replace('./user', './find-user'),
    },
  },
  {
    name: 'node-csv-line',
    tags: ['node'],
    difficulty: 'medium',
    prompt:
      'parseLine in csv.mjs has to understand fields in double quotes: commas inside, and "" for a quote. Unquoted fields stay as they are. Fix it without a package.',
    files: { 'csv.mjs': csvLine },
    check: nodeTest(`
import { parseLine } from '../csv.mjs'
assert.deepEqual(parseLine('a,b,,c'), ['a', 'b', '', 'c'])
assert.deepEqual(parseLine('"x,y",2,"say ""hi"""'), ['x,y', '2', 'say "hi"'])
assert.deepEqual(parseLine('"",""'), ['', ''])
assert.deepEqual(parseLine(''), [''])`),
    solution: {
      'csv.mjs': `export function parseLine(line) {
  const fields = ['']
  let quoted = false
  for (let at = 0; at < line.length; at += 1) {
    const character = line[at]
    if (character === '"' && quoted && line[at + 1] === '"') {
      fields[fields.length - 1] += '"'
      at += 1
    } else if (character === '"') quoted = !quoted
    else if (character === ',' && !quoted) fields.push('')
    else fields[fields.length - 1] += character
  }
  return fields
}
`,
    },
  },
]
