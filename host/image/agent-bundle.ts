// Makes the files of the agent and what it imports, for Node in the guest. Only a checkout does this: the installed
// package brings the bundle. `agent.cjs` is the entry; it runs `main.js`, all of the agent in one file, with the code
// that V8 made of it here. What the agent imports late is evaluated late, and costs nothing before.

import { createHash } from 'node:crypto'
import path from 'node:path'
import type { BuildOptions, Plugin } from 'esbuild'
import { agentCacheName, compileAgent } from './agent-cache.ts'
import { describeNpmPackages } from './agent-packages.ts'
import { ImageError } from './image-error.ts'

interface Absent {
  /** Part of the path of the file that imports them. */
  readonly importer: string
  /** As it names them in its imports. */
  readonly modules: RegExp
  /** What the agent uses instead; the end of a sentence in the error. */
  readonly instead: string
}

const TABLE: readonly Absent[] = [
  {
    importer: 'node_modules/@modelcontextprotocol/client/',
    modules: /\/ajvProvider-/,
    instead: 'clients of MCP servers are given their validator (runtime/mcp/client.ts)',
  },
  {
    // With them Node would load its `assert` and its `worker_threads`, a tenth of the whole start.
    importer: 'node_modules/pino/',
    modules: /^(sonic-boom|thread-stream|worker_threads)$/,
    instead: 'the log goes to a stream that pino is given (agent/link/logger.ts)',
  },
  {
    importer: 'runtime/llm/exchange.ts',
    modules: /^undici$/,
    instead: 'requests go over the HTTP/2 session with the host (agent/link/http.ts)',
  },
]

/** Keeps them out. What they are needed for fails with an error that says so. */
const absentModules: Plugin = {
  name: 'absent-modules',
  setup({ onResolve, onLoad }) {
    for (const { importer, modules, instead } of TABLE) {
      onResolve({ filter: modules }, ({ path, importer: file }) =>
        file.split('\\').join('/').includes(`/${importer}`)
          ? { path: `${path}, imported by ${importer},`, namespace: 'absent', pluginData: instead }
          : undefined,
      )
    }
    onLoad({ filter: /.*/, namespace: 'absent' }, ({ path, pluginData }) => ({
      contents: `module.exports = class { constructor() { throw new Error(${wordsOf(path, String(pluginData))}) } }`,
    }))
  },
}

function wordsOf(path: string, instead: string): string {
  return JSON.stringify(
    `${path} is not part of the agent's bundle: ${instead}; see host/image/agent-bundle.ts`,
  )
}

/** What runs the bundle in the guest. */
const START = path.resolve(import.meta.dirname, '../../agent/start.ts')

/**
 * Files by name: `agent.cjs` is the entry, `packages.json` says which npm packages went in, `main.js.LEGAL.txt` holds
 * their notices.
 */
export type AgentBundle = ReadonlyMap<string, Uint8Array>

/** sha256 over names and contents. */
export function digestOf(bundle: AgentBundle): string {
  const hash = createHash('sha256')
  for (const [name, content] of [...bundle].sort(([a], [b]) => (a < b ? -1 : 1))) {
    hash.update(`${name}\0${content.length}\0`).update(content)
  }
  return hash.digest('hex')
}

const OPTIONS = {
  bundle: true,
  write: false,
  metafile: true,
  outdir: 'out',
  format: 'cjs',
  platform: 'node',
  target: 'node24',
  conditions: ['caisson-source'],
  plugins: [absentModules],
  // A late import becomes a late call of require: a script that comes from a cache has no other.
  supported: { 'dynamic-import': false },
  // Names and lines stay readable in stack traces, and the bytes do not depend on where the checkout lies.
  sourcemap: false,
  minifySyntax: true,
  minifyWhitespace: true,
  lineLimit: 160,
  legalComments: 'external',
  // A text of one byte per character is half the work in the guest.
  charset: 'ascii',
  logLevel: 'silent',
} satisfies BuildOptions

/**
 * Bundles `entry` (absolute path), which exports `startAgent`; the same bytes for the same sources and the same Node.
 * @throws {ImageError} `bundle_failed`
 */
export async function bundleAgent(entry: string): Promise<AgentBundle> {
  try {
    return await bundle(entry)
  } catch (cause) {
    const seen = String((cause as Error).message).slice(0, 1000)
    throw new ImageError(
      'bundle_failed',
      `the agent ${entry} could not be bundled: ${seen}`,
      'fix the source and start again',
      { cause },
    )
  }
}

async function bundle(entry: string): Promise<AgentBundle> {
  const { build } = await import('esbuild')
  const absWorkingDir = path.dirname(entry)
  const [main, start] = await Promise.all([
    build({
      ...OPTIONS,
      absWorkingDir,
      entryPoints: { main: entry },
      banner: { js: '(function (module, exports, require) {' },
      footer: { js: '})' },
    }),
    build({ ...OPTIONS, absWorkingDir, entryPoints: { agent: START }, outExtension: { '.js': '.cjs' } }),
  ])
  const files = new Map<string, Uint8Array>()
  for (const file of [...main.outputFiles, ...start.outputFiles])
    files.set(path.basename(file.path), file.contents)
  const inputs = Object.keys(main.metafile.inputs).map((input) => path.resolve(absWorkingDir, input))
  const packages = await describeNpmPackages(inputs)
  files.set('packages.json', Buffer.from(`${JSON.stringify(packages, null, 1)}\n`))
  return files.set(agentCacheName, compileAgent(files.get('main.js') ?? new Uint8Array()))
}
