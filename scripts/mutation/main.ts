/**
 * Checks that tests notice changes of the code they cover: mutates modules in a temporary copy and runs their fast tests.
 * usage: main.ts [--count N] [--seconds N] [--seed N] [--all PATH]
 * `--all` runs every mutant of one module. Exit code 1: too many survived, or an essential mutant did.
 */
import { execFileSync, spawn } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { type CheckedModule, checkedModules, findTestedMutants } from './modules.ts'
import { applyMutant, type Mutant } from './mutants.ts'

/**
 * Share of a sample that tests must notice. All mutants of seven modules had 0.92, the lowest module 0.81; a sample of
 * sixty differs from that by up to 0.08.
 */
const minKilledShare = 0.75
/** Mutants at once, each in a copy of its own. */
const lanes = 2
const testsMaxMs = 60_000
/** Output of tests that an error shows, in characters. */
const shownMaxChars = 3_000

const { values } = parseArgs({
  options: {
    count: { type: 'string', default: '60' },
    seconds: { type: 'string', default: '240' },
    seed: { type: 'string', default: '1' },
    all: { type: 'string' },
  },
})
const root = path.join(import.meta.dirname, '../..')
const read = (file: string): string => readFileSync(path.join(root, file), 'utf8')
const [count, seconds, seed] = [values.count, values.seconds, values.seed].map(readCount) as [
  number,
  number,
  number,
]
const modules = values.all === undefined ? checkedModules : [findModule(values.all)]
const stopping = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stopping.abort())

interface Job {
  readonly module: CheckedModule
  readonly mutant: Mutant
  readonly isEssential: boolean
}

const jobs = [...essentialJobs(), ...sampledJobs()]
const endsAt = Date.now() + (values.all === undefined ? seconds * 1000 : Number.POSITIVE_INFINITY)
const scratch = mkdtempSync(path.join(tmpdir(), 'caisson-mutation-'))
const results: (Job & { readonly killed: boolean })[] = []
try {
  const works = Array.from({ length: lanes }, (_, lane) => work(path.join(scratch, String(lane))))
  for (const one of works) one.catch(() => stopping.abort())
  const [failure] = (await Promise.allSettled(works)).filter(({ status }) => status === 'rejected')
  if (failure?.status === 'rejected') throw failure.reason
} finally {
  rmSync(scratch, { recursive: true, force: true })
}
const exitCode = report()
process.exitCode = stopping.signal.aborted ? 130 : exitCode

/** Takes mutants until there are none, or the time is over; essential ones come first and are always run. */
async function work(copy: string): Promise<void> {
  copyCheckout(copy)
  const passing = new Set<CheckedModule>()
  for (let job = jobs.shift(); job !== undefined; job = jobs.shift()) {
    if (stopping.signal.aborted || (!job.isEssential && Date.now() > endsAt)) return
    const { module, mutant } = job
    if (!passing.has(module)) {
      const { outcome, output } = await runTests(copy, module)
      if (outcome === 'stopped') return
      if (outcome === 'failed')
        throw new Error(
          `the tests of ${module.file} fail without a mutant: ${module.tests.join(' ')}\n${output}`,
        )
    }
    passing.add(module)
    const text = read(module.file)
    writeFileSync(path.join(copy, module.file), applyMutant(text, mutant))
    const { outcome } = await runTests(copy, module)
    writeFileSync(path.join(copy, module.file), text)
    if (outcome !== 'stopped') results.push({ ...job, killed: outcome === 'failed' })
  }
}

/** Tests that take too long have noticed an endless loop. */
async function runTests(
  copy: string,
  { tests }: CheckedModule,
): Promise<{ readonly outcome: 'passed' | 'failed' | 'stopped'; readonly output: string }> {
  const args = ['run', '--config', 'mutation.config.mjs', '--bail', '1', '--reporter', 'dot', ...tests]
  const program = path.join(root, 'node_modules/vitest/vitest.mjs')
  const child = spawn(process.execPath, [program, ...args], {
    cwd: copy,
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  })
  const stop = (): void => {
    if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL')
  }
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (piece: Buffer) => {
      output = `${output}${piece}`.slice(-shownMaxChars)
    })
  const timer = setTimeout(stop, testsMaxMs)
  stopping.signal.addEventListener('abort', stop)
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject)
    child.once('exit', resolve)
  })
  clearTimeout(timer)
  stopping.signal.removeEventListener('abort', stop)
  if (stopping.signal.aborted) return { outcome: 'stopped', output }
  return { outcome: code === 0 ? 'passed' : 'failed', output }
}

/** The files of the checkout, without its history; packages are linked. */
function copyCheckout(copy: string): void {
  const listed = execFileSync('git', ['ls-files', '-z'], { cwd: root, encoding: 'utf8', maxBuffer: 2 ** 26 })
  for (const file of listed.split('\0').filter(Boolean)) {
    mkdirSync(path.dirname(path.join(copy, file)), { recursive: true })
    cpSync(path.join(root, file), path.join(copy, file))
  }
  symlinkSync(path.join(root, 'node_modules'), path.join(copy, 'node_modules'))
  writeFileSync(
    path.join(copy, 'mutation.config.mjs'),
    `const conditions = ['caisson-source', 'node', 'import', 'default']
export default {
  cacheDir: '.cache',
  ssr: { resolve: { conditions, externalConditions: conditions } },
  resolve: { conditions },
  test: { pool: 'forks', execArgv: ['--conditions=caisson-source'], maxWorkers: 1, testTimeout: 60_000, expect: { poll: { timeout: 10_000 } } },
}
`,
  )
}

function essentialJobs(): Job[] {
  return modules.flatMap((module) =>
    (module.essential ?? []).map(({ from, to }) => {
      const text = read(module.file)
      const start = text.indexOf(from)
      if (start === -1 || text.indexOf(from, start + 1) !== -1)
        throw new Error(
          `${module.file} does not hold this text once, correct scripts/mutation/modules.ts: ${from}`,
        )
      const line = text.slice(0, start).split('\n').length
      const mutant = { start, end: start + from.length, replacement: to, line, change: `${from} -> ${to}` }
      return { module, mutant, isEssential: true }
    }),
  )
}

/** Mutants of all modules in an order that the seed decides. */
function sampledJobs(): Job[] {
  const all = modules.flatMap((module) =>
    findTestedMutants(module, read(module.file)).map((mutant) => ({ module, mutant, isEssential: false })),
  )
  if (values.all !== undefined) return all
  let state = seed
  const draw = (): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return state
  }
  return all
    .map((job) => ({ job, key: draw() }))
    .sort((a, b) => a.key - b.key)
    .slice(0, count)
    .map(({ job }) => job)
}

function report(): number {
  for (const { module, mutant, killed, isEssential } of results) {
    if (killed) continue
    const ids = citedIds(module).join(' ')
    console.log(
      `survived${isEssential ? ' (essential)' : ''}: ${module.file}:${mutant.line}: ${mutant.change} [${ids}]`,
    )
  }
  for (const module of modules) {
    const own = results.filter((result) => result.module === module)
    if (own.length > 0)
      console.log(
        `${module.file}: ${own.length} mutants, ${own.filter(({ killed }) => killed).length} killed`,
      )
  }
  const killed = results.filter((result) => result.killed).length
  console.log(`${results.length} mutants, ${killed} killed, ${results.length - killed} survived`)
  if (results.some((result) => result.isEssential && !result.killed)) return 1
  return killed >= results.length * minKilledShare ? 0 : 1
}

/** Requirement ids in the names of the module's tests. */
function citedIds({ tests }: CheckedModule): string[] {
  const text = tests.map(read).join('\n')
  return [
    ...new Set(
      [...text.matchAll(/\[([A-Z]\d?\.\d\d[^\]]*)\]/g)].flatMap(([, ids = '']) => ids.split(/[ ,]+/)),
    ),
  ].sort()
}

function findModule(file: string): CheckedModule {
  const module = checkedModules.find((one) => one.file === file)
  if (module === undefined)
    throw new Error(
      `no module ${file}; expected one of scripts/mutation/modules.ts: ${checkedModules.map((one) => one.file).join(' ')}`,
    )
  return module
}

function readCount(text: string): number {
  if (!/^\d{1,6}$/.test(text)) throw new Error(`expected a whole number, found ${text}`)
  return Number(text)
}
