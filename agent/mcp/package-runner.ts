/**
 * Servers that a package runner starts (`npx`, `npm exec`, `uvx`). The VM has no network of its own: the program is that
 * of the workspace where it has one; otherwise the host is asked for the registry's address before anything starts.
 */
import { constants } from 'node:fs'
import { access } from 'node:fs/promises'
import * as z from 'zod'
import type { ApprovalDecision } from '#specs/protocol/approval.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { McpServer } from '#specs/protocol/extension.ts'
import { defaultRoot, type FileToolsOptions, readBounded } from '../workspace/file-access.ts'

export interface RunnerParts {
  readonly files?: FileToolsOptions | undefined
  /** Asks the host for an address. */
  askAccess(url: string, reason: string): Promise<ApprovalDecision>
}

export interface Launch {
  readonly config: McpServer
  /** Whether the program is fetched first, which takes long in an emulated VM. */
  readonly isFetched: boolean
}

/** A call of npm's runner, as far as it concerns which program runs. */
export interface RunnerCall {
  /** Packages as written: `name`, `@scope/name@1.2.3`. */
  readonly packages: readonly string[]
  /** The program by name; null: the only one of the package. */
  readonly program: string | null
  readonly args: readonly string[]
  /** Of `--registry`. */
  readonly registry: string | null
}

const defaultRegistry = 'https://registry.npmjs.org/'
const manifestMaxBytes = 256 * 1024
const settingsMaxBytes = 64 * 1024
/** npm would ask on a terminal, and try an address again for minutes. */
const runnerEnvironment = {
  npm_config_yes: 'true',
  npm_config_fetch_retries: '1',
  npm_config_fetch_retry_mintimeout: '1000',
} as const
const packageName = /^(?:@[a-z0-9~_.-]+\/)?[a-z0-9~_-][a-z0-9~_.-]*$/i
const plainVersion = /^[\w.~^*+-]+$/
const plainHost = /^[a-z0-9.-]+$/
const programName = /^[a-z0-9_][a-z0-9_.-]*$/i

const Manifest = z.looseObject({
  version: z.string().max(256).optional(),
  bin: z.union([z.string(), z.record(z.string(), z.string())]).optional(),
})

/** The server as it is started; other programs than runners as they are configured. */
export async function prepareLaunch(config: McpServer, parts: RunnerParts): Promise<Result<Launch, string>> {
  const runner = (config.command ?? '').split('/').at(-1) ?? ''
  if (config.transport !== 'stdio') return asConfigured(config)
  if (runner === 'uvx' || (runner === 'uv' && config.args?.[0] === 'tool'))
    return await prepareUv(config, runner)
  const call = readRunnerCall(runner, config.args ?? [])
  const [spec] = call?.packages ?? []
  // A folder, an archive or a repository is the runner's own matter.
  if (call === null || spec === undefined || !packageName.test(splitSpec(spec).name))
    return asConfigured(config)
  const found = await findInWorkspace(call, spec, config, parts.files)
  if (found.program !== null) {
    const own = { ...config, command: found.program, args: [...call.args] }
    return { ok: true, value: { config: own, isFetched: false } }
  }
  const registry = await findRegistry(call, spec, config, parts.files)
  const { decision, hint } = await parts.askAccess(
    registry.href,
    `the MCP server's package ${spec}, by ${runner}`,
  )
  if (decision === 'allow')
    return {
      ok: true,
      value: { config: { ...config, env: { ...runnerEnvironment, ...config.env } }, isFetched: true },
    }
  const why = hint === undefined || hint.trim() === '' ? 'it was denied' : hint
  // A person may copy these commands, and the workspace may have written the package and the registry.
  const { name, version } = splitSpec(spec)
  const plainSpec = version === null || plainVersion.test(version) ? spec : name
  const isPlainHost = registry.origin === `https://${registry.hostname}` && plainHost.test(registry.hostname)
  const allow = isPlainHost ? ` with --allow-host ${registry.hostname}` : ''
  return {
    ok: false,
    error: `${runner} cannot fetch ${plainSpec}, because the VM may not reach ${registry.origin}: ${why}. ${found.problem}. Install it in the workspace (npm install ${plainSpec}), allow the registry${allow} in the egress rules, or run the server elsewhere and give its url`,
  }
}

/** Null where this is no call of a runner that names a package. */
export function readRunnerCall(runner: string, given: readonly string[]): RunnerCall | null {
  const args = [...given]
  if (runner === 'npm') {
    if (args[0] !== 'exec' && args[0] !== 'x') return null
    args.shift()
  } else if (runner !== 'npx') return null
  const packages: string[] = []
  let registry: string | null = null
  for (let word = args[0]; word?.startsWith('-') === true; word = args[0]) {
    args.shift()
    if (word === '--') break
    const [name, inline] = splitOption(word)
    if (name === '-p' || name === '--package') packages.push(inline ?? args.shift() ?? '')
    else if (name === '--registry') registry = inline ?? args.shift() ?? null
    // A shell line, or a folder that is none of the workspace.
    else if (!plainOptions.has(name)) return null
  }
  const program = args.shift()
  if (program === undefined) return null
  // npm takes its own options from behind the package too, up to `--`.
  if (runner === 'npm' && args[0] === '--') args.shift()
  return packages.length === 0
    ? { packages: [program], program: null, args, registry }
    : { packages, program, args, registry }
}

const plainOptions = new Set([
  '-y',
  '--yes',
  '-q',
  '--quiet',
  '--silent',
  '--prefer-offline',
  '--prefer-online',
])

function splitOption(word: string): readonly [string, string | undefined] {
  const at = word.indexOf('=')
  return at < 0 ? [word, undefined] : [word.slice(0, at), word.slice(at + 1)]
}

/** Name and version, range or tag, of `@scope/name@version`. */
function splitSpec(spec: string): { readonly name: string; readonly version: string | null } {
  const at = spec.indexOf('@', 1)
  return at < 0 ? { name: spec, version: null } : { name: spec.slice(0, at), version: spec.slice(at + 1) }
}

interface Found {
  /** Absolute path; null: the workspace does not have it. */
  readonly program: string | null
  /** Why not, for people. */
  readonly problem: string
}

/** Looks below `cwd` and below the workspace. A range or a tag takes the version that is there, an exact version only itself. */
async function findInWorkspace(
  call: RunnerCall,
  spec: string,
  { cwd }: McpServer,
  files: FileToolsOptions = {},
): Promise<Found> {
  const { root = defaultRoot } = files
  const { name, version } = splitSpec(spec)
  let problem = `The workspace has no node_modules/${name}`
  for (const folder of new Set([relativeFolder(cwd), ''])) {
    const manifest = await readManifest(`${folder}node_modules/${name}/package.json`, files)
    const isExact = version !== null && /^\d+\.\d+\.\d+/.test(version)
    if (isExact && manifest !== null && manifest.version !== version) {
      problem = `The workspace has another version of it (${(manifest.version ?? 'none').slice(0, 40)})`
      continue
    }
    if (isExact && manifest === null) continue
    const program = call.program ?? (manifest === null ? name : programOf(name, manifest.bin))
    if (program === null || !programName.test(program)) continue
    const file = `${folder}node_modules/.bin/${program}`
    if ((await readBounded(files, file, 1)).ok) return { program: `${root}/${file}`, problem: '' }
    if (manifest !== null) problem = `The workspace has no ${file}`
  }
  return { program: null, problem }
}

function relativeFolder(cwd: string | undefined): string {
  if (cwd === undefined || cwd === defaultRoot) return ''
  const relative = cwd.startsWith(`${defaultRoot}/`) ? cwd.slice(defaultRoot.length + 1) : cwd
  return relative.startsWith('/') || relative === '' ? '' : `${relative.replace(/\/+$/, '')}/`
}

async function readManifest(file: string, files: FileToolsOptions): Promise<z.infer<typeof Manifest> | null> {
  const read = await readBounded(files, file, manifestMaxBytes)
  if (!read.ok || read.value.length > manifestMaxBytes) return null
  try {
    return Manifest.safeParse(JSON.parse(read.value.toString('utf8'))).data ?? null
  } catch {
    return null
  }
}

/** npm's rule: the only program, or that of the package's own name. */
function programOf(name: string, bin: string | Record<string, string> | undefined): string | null {
  const own = name.split('/').at(-1) ?? name
  if (bin === undefined) return null
  if (typeof bin === 'string') return own
  const names = Object.keys(bin)
  return names.length === 1 ? (names[0] ?? null) : names.includes(own) ? own : null
}

/** What npm itself would ask: its option, its variable, the workspace's `.npmrc`, else the public one. */
async function findRegistry(
  { registry }: RunnerCall,
  spec: string,
  { env = {} }: McpServer,
  files: FileToolsOptions = {},
): Promise<URL> {
  const read = await readBounded(files, '.npmrc', settingsMaxBytes)
  const settings = new Map<string, string>()
  for (const line of read.ok ? read.value.toString('utf8').split('\n') : []) {
    const [, key, value] = /^\s*((?:@[\w.~-]+:)?registry)\s*=\s*"?([^"\s]+)"?\s*$/.exec(line) ?? []
    if (key !== undefined && value !== undefined) settings.set(key, value)
  }
  const scope = spec.startsWith('@') ? spec.split('/')[0] : undefined
  const variable = Object.entries(env).find(([name]) => name.toLowerCase() === 'npm_config_registry')?.[1]
  const candidates = [settings.get(`${scope}:registry`), registry, variable, settings.get('registry')]
  for (const candidate of candidates) {
    const address = candidate == null ? null : URL.parse(candidate)
    // Without the user and password that an address in the workspace's settings may have.
    if (address !== null && /^https?:$/.test(address.protocol))
      return new URL(`${address.protocol}//${address.host}/`)
  }
  return new URL(defaultRegistry)
}

/** A `uv` that somebody put into the VM is used as it is. */
async function prepareUv(config: McpServer, runner: string): Promise<Result<Launch, string>> {
  const folders = ['/usr/local/bin', '/usr/bin', '/home/work/.local/bin']
  for (const folder of folders)
    if (
      await access(`${folder}/${runner}`, constants.X_OK).then(
        () => true,
        () => false,
      )
    )
      return asConfigured(config)
  return {
    ok: false,
    error: `the VM has no ${runner}. Put the server and its packages into the workspace (pip install --target) and start it with python3, or run it elsewhere and give its url`,
  }
}

function asConfigured(config: McpServer): Result<Launch, string> {
  return { ok: true, value: { config, isFetched: false } }
}
