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
import { setTimeout as sleep } from 'node:timers/promises'

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

/** A machine that needs longer for what comes before the slow tier has no time for all of its random cases. */
const SLOW_MACHINE_S = 45 * 60

const started = Date.now()
const tier = process.argv[2] === 'all' ? 'all' : 'fast'
const scratch = mkdtempSync(path.join(tmpdir(), 'caisson-test-'))
/** In this checkout: the bundle finds its packages. */
const bundled = path.resolve('node_modules/.cache', path.basename(scratch))
const node = ['--conditions=caisson-source']
// Tests start programs of this checkout hundreds of times: each start takes a third less processor time.
process.env.NODE_COMPILE_CACHE = path.join(scratch, 'compiled')
const total: Count = { passed: 0, failed: 0, skipped: 0 }
const failures: string[] = []
const failedTests: string[] = []
/** Each ends a stage with all its processes. */
const underWay = new Set<() => void>()

process.once('exit', () => {
  for (const folder of [scratch, bundled]) rmSync(folder, { recursive: true, force: true })
})
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
  process.once(signal, () => {
    for (const end of underWay) end()
    process.exit(130)
  })

interface RunOptions {
  /** Beside the variables of this process. */
  readonly env?: Readonly<Record<string, string>>
  /** Others run at the same time: what it prints follows as a whole when it has ended. */
  readonly isBesideOthers?: boolean
}

/** Runs `command` in a process group of its own, which is killed as a whole beyond its time or with this process. */
async function run(
  title: string,
  command: string,
  args: readonly string[],
  { env = {}, isBesideOthers = false }: RunOptions = {},
): Promise<boolean> {
  const startedS = elapsedS()
  const limitS = Math.max(1, Math.min(STAGE_LIMIT_S, ALL_LIMIT_S - startedS))
  if (!isBesideOthers) console.log(`\n== ${title} (${startedS} s)`)
  const child = spawn(command, args, {
    env: { ...process.env, ...env },
    stdio: ['ignore', ...(isBesideOthers ? (['pipe', 'pipe'] as const) : (['inherit', 'inherit'] as const))],
    detached: true,
  })
  const printed: Buffer[] = []
  for (const stream of [child.stdout, child.stderr])
    stream?.on('data', (bytes: Buffer) => void printed.push(bytes))
  const end = () => {
    const { pid, exitCode, signalCode } = child
    if (pid !== undefined && exitCode === null && signalCode === null) process.kill(-pid, 'SIGKILL')
  }
  underWay.add(end)
  let isLate = false
  const timer = setTimeout(() => {
    isLate = true
    end()
  }, limitS * 1_000)
  let problem = ''
  let code: unknown
  try {
    const closed = new Promise((resolve) => child.once('close', resolve))
    ;[code] = await once(child, 'exit')
    // A process that was left behind keeps the pipes open.
    await Promise.race([closed, sleep(5_000, undefined, { ref: false })])
  } catch (error) {
    problem = `cannot start ${command}: ${error instanceof Error ? error.message : error}`
  } finally {
    clearTimeout(timer)
    underWay.delete(end)
  }
  if (isBesideOthers) {
    console.log(`\n== ${title} (${startedS} to ${elapsedS()} s)`)
    process.stdout.write(Buffer.concat(printed))
  }
  if (isLate) problem = `did not end within ${limitS} s and was stopped`
  if (problem !== '') console.log(`\n${title}: ${problem}`)
  return code === 0
}

function elapsedS(): number {
  return Math.round((Date.now() - started) / 1000)
}

async function check(title: string, command: string, args: string[], options?: RunOptions): Promise<void> {
  const passed = await run(title, command, args, options)
  total[passed ? 'passed' : 'failed'] += 1
  if (!passed) failures.push(title)
}

/** On one processor each: the report of the public types takes as long as the others together. */
async function checkSources(): Promise<void> {
  const beside = { isBesideOthers: true }
  const checkOthers = async () => {
    await check('types', 'node_modules/.bin/tsc', ['--noEmit'], beside)
    await check('types of the page', 'node_modules/.bin/tsc', ['--noEmit', '-p', 'page'], beside)
    await check('types of the extension', 'node_modules/.bin/tsc', ['--noEmit', '-p', 'vscode'], beside)
    await check('style', 'node_modules/.bin/biome', ['check', '--error-on-warnings', '.'], beside)
    await check('words', process.execPath, [...node, 'scripts/check-words.ts'], beside)
    await check('dependencies', process.execPath, [...node, 'scripts/check-dependencies.ts'], beside)
  }
  await Promise.all([
    check('public types', process.execPath, [...node, 'scripts/api-report.ts', '--check'], beside),
    checkOthers(),
  ])
}

/** The fast tier of the last commit, as a user without rights on a machine that has only git and npm. */
async function testOnFreshMachine(): Promise<void> {
  const file = path.join(scratch, 'fresh-machine')
  const env = { CAISSON_TEST_RESULT: file, CAISSON_TEST_ONCE: '1' }
  await check('fresh machine', 'scripts/fresh-machine', ['user'], { env, isBesideOthers: true })
  const result = readText(file)
  const [, passed = 0, failed = 0] = /^(\d+) passed, (\d+) failed$/m.exec(result) ?? []
  total.passed += Number(passed)
  total.failed += Number(failed)
  const [tests = ''] = result.split(/^failed: /m)
  if (tests.startsWith('FAILED ')) failedTests.push(tests.slice('FAILED '.length).trim())
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

interface TestOptions extends RunOptions {
  /** Only files whose path has one of these; empty: all of them. */
  readonly parts?: readonly string[]
  /** Without files that end in one of these. */
  readonly left?: readonly string[]
}

/** One vitest project; one that ran no test, or died before reporting, counts as one failure. */
async function test(project: string, { parts = [], left = [], ...options }: TestOptions = {}): Promise<void> {
  const report = path.join(scratch, `${project}.json`)
  const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${report}`]
  const args = [
    'run',
    '--project',
    project,
    ...reporters,
    ...left.map((end) => `--exclude=**${end}`),
    ...parts,
  ]
  const passed = await run(`tests: ${project}`, 'node_modules/.bin/vitest', args, options)
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

async function checkScriptsAndSite(options: RunOptions): Promise<void> {
  const scripts = ['run', 'test', 'docs', 'fresh-machine'].map((name) => `scripts/${name}`)
  const files = [...scripts, '.ci/run', 'vm-image/build.sh', 'vm-image/disk.sh']
  await check('shell scripts', 'shellcheck', ['-x', ...files], options)
  await check('documentation site', 'scripts/docs', ['build'], options)
}

/** Of the slow tier: what lies around the product, in groups: a slow machine has one of them each day. */
const aroundProduct = [
  ['scripts/bench/bench'],
  ['test/repository/package', 'host/test/runs/disk-image', 'test/service/engines-example'],
  ['test/repository/coding-agent-example', 'scripts/eval/attempt', 'test/service/notify-example'],
  ['scripts/release/dry-run', 'scripts/site/site', 'host/test/image/packer'],
  ['test/repository/sandbox-tools-example', 'test/repository/trigger-example', 'test/acp/acpx'],
  ['test/mcp-sign-in/conformance', 'runtime/test/mcp/conformance', 'test/service/mcp-conformance'],
  ['scripts/eval/eval', 'test/repository/runtime-versions'],
]

function leftToday(): readonly string[] {
  const today = Math.floor(Date.now() / 86_400_000) % aroundProduct.length
  return aroundProduct.flatMap((group, at) =>
    at === today ? [] : group.map((name) => `/${name}.slow.test.ts`),
  )
}

async function testSlowTier(left: readonly string[]): Promise<void> {
  const isSlow = elapsedS() > SLOW_MACHINE_S
  const leftHere = isSlow ? leftToday() : []
  if (isSlow) console.log('\nThis machine is slow: its slow tier has as many random cases as the fast tier')
  for (const file of leftHere) console.log(`not run today on a slow machine: ${file.slice(1)}`)
  const options = isSlow ? { env: { CAISSON_TEST_TIER: 'fast' } } : {}
  await test('slow', { left: [...left, ...leftHere], ...options })
  await test('more', options)
}

/** Of the slow tier: they keep one processor busy, which a fresh machine leaves idle at first. */
const besideFreshMachine = ['/image/build.slow.test.ts', '/mutation/mutation.slow.test.ts']

/** Tests start the command line hundreds of times. */
async function bundleCli(): Promise<void> {
  await check('command line', process.execPath, [...node, 'scripts/bundle-cli.ts', bundled])
  process.env.CAISSON_TEST_CLI = path.join(bundled, 'host/cli/bin.js')
}

await bundleCli()
const isRoot = process.getuid?.() === 0
if (tier === 'all' && process.env.CI === 'true' && isRoot) {
  // A fresh machine uses one processor until its tests begin, and most of the others have ended by then.
  const beside = { isBesideOthers: true }
  const checkHere = async () => {
    await check('image', process.execPath, [...node, 'host/cli/bin.ts', 'image', 'build'], beside)
    await checkScriptsAndSite(beside)
    await test('fast', { parts: testsOfRoot(), ...beside })
    await test('slow', { parts: besideFreshMachine, ...beside })
  }
  await Promise.all([testOnFreshMachine(), checkHere()])
  await test('vm', { left: firstVmTests })
  await testSlowTier(besideFreshMachine)
} else {
  await checkSources()
  if (tier === 'all') await checkScriptsAndSite({})
  await test('fast')
  await test('vm', { parts: tier === 'all' ? [] : firstVmTests })
  if (tier === 'all') await testSlowTier([])
}

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
