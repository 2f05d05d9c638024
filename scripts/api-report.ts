/**
 * Writes the public types of each entry point to `specs/api/`, so that a change of them shows in review.
 * usage: api-report.ts [--check] — `--check` writes nothing, and fails when a report is out of date or when a type can
 * be reached that is neither exported nor listed in `hidden`.
 */
import { execFileSync } from 'node:child_process'
import { globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { CompilerState, Extractor, ExtractorConfig, type IConfigFile } from '@microsoft/api-extractor'

const root = path.join(import.meta.dirname, '..')
const folder = path.join(root, 'specs/api')
const entries = {
  caisson: 'host',
  'caisson-client': 'client',
  'caisson-runtime': 'runtime',
  'caisson-testing': 'runtime/testing',
  'caisson-agent': 'goals',
}
/** Entries whose types this one shares; they come before it in `entries`. */
const sharing: Readonly<Record<string, readonly string[]>> = {
  'caisson-agent': ['caisson', 'caisson-runtime'],
}
/** Parameters of constructors that only the library calls, and schemas and helpers behind an exported type. */
const hidden = new Set([
  'ActedRun',
  'Adaptation',
  'ApiKey',
  'ApiKeyQuotas',
  'Asked',
  'Awaitable',
  'ChangesPlace',
  'CheckedRunQuery',
  'Fields',
  'FramedStream',
  'HeldBack',
  'HookHead',
  'HookedStep',
  'HostIndex',
  'ImageManifest',
  'JournalScan',
  'KeyFile',
  'McpPin',
  'PersistentGrant',
  'PinKey',
  'Problem',
  'ProposalNote',
  'PublicOf',
  'Reply',
  'RequestRejection',
  'PlannedRun',
  'Review',
  'ReviewSide',
  'RuleOrigin',
  'RunFold',
  'RunRecord',
  'SandboxOwner',
  'Scope',
  'Setting',
  'SharedKeys',
  'Skill',
  'WorkspaceNote',
  'hookVersion',
  'modelFailures',
  'workspaceErrorCodes',
])

const isCheck = process.argv.includes('--check')
const scratch = mkdtempSync(path.join(tmpdir(), 'caisson-api-'))
try {
  process.exitCode = report(scratch)
} finally {
  rmSync(scratch, { recursive: true, force: true })
}

function report(scratch: string): number {
  writeDeclarations(scratch)
  const problems: string[] = []
  const exported = new Map<string, ReadonlySet<string>>()
  const configs = Object.entries(entries).map(([name, entry]) => configure(scratch, name, entry))
  const [first] = configs
  if (first === undefined) throw new Error('there is no entry point')
  const files = configs.map(({ mainEntryPointFilePath }) => mainEntryPointFilePath)
  // One program for all entries: most of the time goes to reading the declarations that they share.
  const compilerState = CompilerState.create(first, { additionalEntryPoints: files.slice(1) })
  for (const [index, name] of Object.keys(entries).entries()) {
    const file = path.join(folder, `${name}.api.md`)
    const { text, forgotten } = extract(configs[index] ?? first, name, compilerState)
    exported.set(name, exportsOf(text))
    const isShared = (type: string) => sharing[name]?.some((other) => exported.get(other)?.has(type)) === true
    const missing = forgotten.filter((type) => !isShared(type))
    problems.push(...missing.map((type) => `${name}: ${type} can be reached but is not exported`))
    if (!isCheck) writeFileSync(file, text)
    else if (readFileSync(file, 'utf8') !== text)
      problems.push(`specs/api/${name}.api.md is out of date: run npm run api, and review the difference`)
    console.log(`${name}: ${countSymbols(text)} symbols`)
  }
  for (const problem of problems) console.error(problem)
  return problems.length === 0 ? 0 : 1
}

/** Outside of the checkout, with a manifest that resolves `#specs/…` to declarations. */
function writeDeclarations(scratch: string): void {
  const compiler = path.join(root, 'node_modules/typescript/bin/tsc')
  const project = path.join(root, 'tsconfig.build.json')
  // The check of the types has their errors.
  const output = ['--emitDeclarationOnly', '--noCheck', '--outDir', scratch]
  execFileSync(process.execPath, [compiler, '-p', project, ...output], { cwd: root, stdio: 'inherit' })
  for (const file of globSync('**/*.d.ts', { cwd: scratch })) importZodOnce(path.join(scratch, file))
  symlinkSync(path.join(root, 'node_modules'), path.join(scratch, 'node_modules'))
  const imports = { '#specs/*.ts': './specs/*.d.ts', '#runtime/*.ts': './runtime/*.d.ts' }
  writeFileSync(
    path.join(scratch, 'package.json'),
    JSON.stringify({ name: 'caisson', type: 'module', imports }),
  )
}

/** API Extractor takes twice the time for each level of `import(…)` inside the arguments of another. */
function importZodOnce(file: string): void {
  const text = readFileSync(file, 'utf8')
  const named = text.replaceAll('import("zod").', 'z.').replaceAll('import("zod/v4/core").', 'core.')
  if (named === text) return
  const imports = ['import * as z from "zod"', 'import * as core from "zod/v4/core"']
  writeFileSync(file, [...imports, named].join('\n'))
}

function configure(scratch: string, name: string, entry: string): ExtractorConfig {
  const output = path.join(scratch, 'report')
  mkdirSync(output, { recursive: true })
  const compilerOptions = {
    target: 'ES2024',
    lib: ['ES2024', 'ESNext.Disposable', 'ESNext.Collection'],
    module: 'NodeNext',
    moduleResolution: 'NodeNext',
    strict: true,
    exactOptionalPropertyTypes: true,
    skipLibCheck: true,
    types: ['node'],
  }
  const main = path.join(scratch, entry, 'index.d.ts')
  const configObject: IConfigFile = {
    projectFolder: scratch,
    mainEntryPointFilePath: main,
    compiler: { overrideTsconfig: { compilerOptions, include: [main] } },
    apiReport: {
      enabled: true,
      reportFileName: `${name}.api.md`,
      reportFolder: output,
      reportTempFolder: output,
    },
    docModel: { enabled: false },
    dtsRollup: { enabled: false },
    tsdocMetadata: { enabled: false },
    newlineKind: 'lf',
    messages: {
      compilerMessageReporting: { default: { logLevel: 'error' as never } },
      extractorMessageReporting: {
        default: { logLevel: 'none' as never },
        'ae-forgotten-export': { logLevel: 'warning' as never },
      },
      tsdocMessageReporting: { default: { logLevel: 'none' as never } },
    },
  }
  return ExtractorConfig.prepare({
    configObject,
    configObjectFullPath: undefined,
    packageJsonFullPath: path.join(scratch, 'package.json'),
    packageJson: { name: 'caisson', version: '0.0.0' },
  })
}

function extract(
  config: ExtractorConfig,
  name: string,
  compilerState: CompilerState,
): { text: string; forgotten: string[] } {
  const forgotten = new Set<string>()
  const { errorCount } = Extractor.invoke(config, {
    compilerState,
    localBuild: true,
    messageCallback: (message) => {
      message.handled = true
      const type = /The symbol "(\w+?)(?:_\d+)?" needs/.exec(message.text)?.[1]
      if (message.messageId === 'ae-forgotten-export' && type !== undefined) forgotten.add(type)
      else if (message.category === 'Compiler') console.error(message.text)
    },
  })
  if (errorCount > 0) throw new Error(`the types of ${name} have ${errorCount} errors`)
  const text = readFileSync(path.join(config.reportFolder, `${name}.api.md`), 'utf8')
  return { text, forgotten: [...forgotten].filter((type) => !hidden.has(type)).toSorted() }
}

function exportsOf(text: string): Set<string> {
  const named = text.matchAll(/^export (?:\w+ )*?(?:class|const|function|interface|type) (\w+)/gm)
  const listed = text.matchAll(/^export \{ (?:\w+ as )?(\w+) \}/gm)
  return new Set([...named, ...listed].map(([, name = '']) => name))
}

function countSymbols(text: string): number {
  return [...text.matchAll(/^(?:export |export \{ \w+ \})/gm)].length
}
