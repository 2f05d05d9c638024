/**
 * Runs the checks and the test tiers in order and ends with `N passed, N failed`.
 * usage: test.ts fast|all — `fast` is checks, unit tests and the basic tests in a real VM; `all` adds the other tests
 * in VMs and the slow tier. In continuous integration, as root, each test runs once: the fast tier on a fresh machine, as
 * a user without rights, but for what the slow tier has with more rounds.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { globSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'

interface Count {
  passed: number
  failed: number
  skipped: number
}

/** The part of vitest's report in use. */
interface Report {
  readonly numPassedTests?: number
  readonly numFailedTests?: number
  readonly numPendingTests?: number
  readonly numTodoTests?: number
  /** One per file; times in milliseconds. */
  readonly testResults?: readonly {
    readonly name: string
    readonly startTime: number
    readonly endTime: number
    /** Why the whole file failed; absent if it did not. */
    readonly message?: string
    readonly assertionResults?: readonly {
      readonly status: string
      readonly fullName: string
      readonly failureMessages?: readonly string[]
    }[]
  }[]
}

/** Number of files listed with their time. */
const HEAVIEST = 8
/** Lines of each failure repeated at the end: a long log is often cut there. */
const MESSAGE_LINES = 12

/** A stage that hangs is ended, so that what failed is still said; each takes less than half of it. */
const STAGE_LIMIT_S = 45 * 60
/** Continuous integration gives 90 minutes in all. */
const ALL_LIMIT_S = 88 * 60

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

const started = Date.now()
const tier = process.argv[2] === 'all' ? 'all' : 'fast'
const scratch = mkdtempSync(path.join(tmpdir(), 'caisson-test-'))
const node = ['--conditions=caisson-source']
// Tests start programs of this checkout hundreds of times: each start takes a third less processor time.
process.env.NODE_COMPILE_CACHE = path.join(scratch, 'compiled')
const total: Count = { passed: 0, failed: 0, skipped: 0 }
const failures: string[] = []
const failedTests: string[] = []

/** Runs `command` in a process group of its own, which is killed as a whole beyond its time or with this process. */
async function run(title: string, command: string, args: string[]): Promise<boolean> {
  const elapsedS = Math.round((Date.now() - started) / 1000)
  console.log(`\n== ${title} (${elapsedS} s)`)
  const limitS = Math.max(1, Math.min(STAGE_LIMIT_S, ALL_LIMIT_S - elapsedS))
  const child = spawn(command, args, { stdio: ['ignore', 'inherit', 'inherit'], detached: true })
  const end = () => {
    const { pid, exitCode, signalCode } = child
    if (pid !== undefined && exitCode === null && signalCode === null) process.kill(-pid, 'SIGKILL')
  }
  const interrupt = () => {
    end()
    process.exit(130)
  }
  for (const signal of SIGNALS) process.once(signal, interrupt)
  const timer = setTimeout(() => {
    console.log(`\n${title}: did not end within ${limitS} s and was stopped`)
    end()
  }, limitS * 1_000)
  try {
    const [code] = await once(child, 'exit')
    return code === 0
  } catch (error) {
    console.log(`${title}: cannot start ${command}: ${error instanceof Error ? error.message : error}`)
    return false
  } finally {
    clearTimeout(timer)
    for (const signal of SIGNALS) process.off(signal, interrupt)
  }
}

async function check(title: string, command: string, args: string[]): Promise<void> {
  const passed = await run(title, command, args)
  total[passed ? 'passed' : 'failed'] += 1
  if (!passed) failures.push(title)
}

async function checkSources(): Promise<void> {
  await check('types', 'node_modules/.bin/tsc', ['--noEmit'])
  await check('types of the page', 'node_modules/.bin/tsc', ['--noEmit', '-p', 'page'])
  await check('types of the extension', 'node_modules/.bin/tsc', ['--noEmit', '-p', 'vscode'])
  await check('style', 'node_modules/.bin/biome', ['check', '--error-on-warnings', '.'])
  await check('public types', process.execPath, [...node, 'scripts/api-report.ts', '--check'])
  await check('words', process.execPath, [...node, 'scripts/check-words.ts'])
  await check('dependencies', process.execPath, [...node, 'scripts/check-dependencies.ts'])
}

/** The fast tier of the last commit, as a user without rights on a machine that has only git and npm. */
async function testOnFreshMachine(): Promise<void> {
  const file = path.join(scratch, 'fresh-machine')
  process.env.CAISSON_TEST_RESULT = file
  process.env.CAISSON_TEST_ONCE = '1'
  await check('fresh machine', 'scripts/fresh-machine', ['user'])
  const result = readText(file)
  const [, passed = 0, failed = 0] = /^(\d+) passed, (\d+) failed$/m.exec(result) ?? []
  total.passed += Number(passed)
  total.failed += Number(failed)
  const [tests = ''] = result.split(/^failed: /m)
  if (tests.startsWith('FAILED ')) failedTests.push(tests.slice('FAILED '.length).trim())
  delete process.env.CAISSON_TEST_ONCE
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}

/** The fast tier's tests in a real VM: the guest itself, whole runs, plans and messages. */
const firstVmTests = ['guest', 'run', 'agent-core'].map((name) => `/${name}.vm.test.ts`)

/** The fast tier's tests that do more, or something else, as root. */
function testsOfRoot(): string[] {
  return globSync('{specs,runtime,agent,host,client,page,vscode,vm-image,scripts,test}/**/*.test.ts', {
    exclude: ['**/node_modules/**', '**/*.vm.test.ts', '**/*.slow.test.ts'],
  }).filter((file) => readFileSync(file, 'utf8').includes('getuid'))
}

/**
 * One vitest project, or its files whose path has one of `parts`, without those that end in one of `left`; a project
 * that ran no test, or died before reporting, counts as one failure.
 */
async function test(
  project: string,
  parts: readonly string[] = [],
  left: readonly string[] = [],
): Promise<void> {
  const report = path.join(scratch, `${project}.json`)
  const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${report}`]
  const passed = await run(`tests: ${project}`, 'node_modules/.bin/vitest', [
    'run',
    '--project',
    project,
    ...reporters,
    ...left.map((end) => `--exclude=**${end}`),
    ...parts,
  ])
  const counted = readReport(report)
  total.passed += counted.passed
  total.skipped += counted.skipped
  const silent = counted.passed + counted.failed === 0 || (!passed && counted.failed === 0)
  total.failed += counted.failed + (silent ? 1 : 0)
  if (!passed || silent) failures.push(`tests: ${project}`)
}

function readReport(file: string): Count {
  try {
    const report = JSON.parse(readFileSync(file, 'utf8')) as Report
    const { numPassedTests = 0, numFailedTests = 0, numPendingTests = 0, numTodoTests = 0 } = report
    printHeaviest(report)
    failedTests.push(...failedOf(report))
    return { passed: numPassedTests, failed: numFailedTests, skipped: numPendingTests + numTodoTests }
  } catch {
    return { passed: 0, failed: 0, skipped: 0 }
  }
}

/** File, name and first lines of each failed test, and of each file that could not run. */
function failedOf({ testResults = [] }: Report): string[] {
  return testResults.flatMap(({ name, message = '', assertionResults = [] }) => {
    const file = path.relative('', name)
    const failed = assertionResults.filter(({ status }) => status === 'failed')
    if (failed.length === 0) return message === '' ? [] : [withMessage(file, message)]
    return failed.map(({ fullName, failureMessages = [] }) =>
      withMessage(`${file} > ${fullName}`, failureMessages.join('\n')),
    )
  })
}

function withMessage(title: string, message: string): string {
  const lines = message.trim().split('\n').slice(0, MESSAGE_LINES)
  return [title, ...lines.map((line) => `    ${line}`)].join('\n')
}

/** Time per file, for those who maintain the time budget. */
function printHeaviest({ testResults = [] }: Report): void {
  const files = testResults.map(({ name, startTime, endTime }) => ({ name, ms: endTime - startTime }))
  const heaviest = files.toSorted((a, b) => b.ms - a.ms).slice(0, HEAVIEST)
  const shown = heaviest.map(({ name, ms }) => `${path.relative('', name)} ${Math.round(ms / 1000)} s`)
  console.log(`heaviest: ${shown.join(', ')}`)
}

const isRoot = process.getuid?.() === 0
const hasFreshMachine = tier === 'all' && process.env.CI === 'true' && isRoot
if (!hasFreshMachine) await checkSources()
if (tier === 'all')
  await check('shell scripts', 'shellcheck', [
    '-x',
    'scripts/run',
    'scripts/test',
    'scripts/docs',
    'scripts/fresh-machine',
    '.ci/run',
    'vm-image/build.sh',
    'vm-image/disk.sh',
  ])
if (tier === 'all') await check('documentation site', 'scripts/docs', ['build'])
if (hasFreshMachine) {
  await testOnFreshMachine()
  await test('fast', testsOfRoot())
  await test('vm', [], firstVmTests)
} else {
  await test('fast')
  await test('vm', tier === 'all' ? [] : firstVmTests)
}
if (tier === 'all') await test('slow')

rmSync(scratch, { recursive: true, force: true })
const failedAny = total.failed > 0
for (const failed of failedTests) console.log(`\nFAILED ${failed}`)
if (failedAny) console.log(`\nfailed: ${failures.join(', ')}`)
// In continuous integration a test that did not run proves nothing.
const skippedInCi = process.env.CI === 'true' && total.skipped > 0
if (skippedInCi)
  console.log(`\n${total.skipped} tests were skipped, which continuous integration does not accept`)
console.log(`\nin ${Math.round((Date.now() - started) / 1000)} s`)
console.log(`${total.passed} passed, ${total.failed + (skippedInCi ? 1 : 0)} failed`)
process.exitCode = failedAny || skippedInCi || total.passed === 0 ? 1 : 0
