// Modules excluded from the agent's bundle: its libraries import them for features that the agent never uses, and each
// would slow down every start. A class that cannot be constructed replaces each one.

import type { Plugin } from 'esbuild'

interface Absent {
  /** The package that imports them. */
  readonly importer: string
  /** As it names them in its imports. */
  readonly modules: RegExp
  /** What the agent uses instead; the end of a sentence in the error. */
  readonly instead: string
}

const TABLE: readonly Absent[] = [
  {
    importer: '@modelcontextprotocol/sdk',
    modules: /^ajv(-formats)?$/,
    instead: 'clients of MCP servers are given their validator (runtime/mcp/client.ts)',
  },
  {
    // With them Node would load its `assert` and its `worker_threads`, a tenth of the whole start.
    importer: 'pino',
    modules: /^(sonic-boom|thread-stream|worker_threads)$/,
    instead: 'the log goes to a stream that pino is given (agent/link/logger.ts)',
  },
  {
    importer: 'undici',
    modules: /\/(llhttp|milo)\/[\w-]*(wasm|simd)\.js$/,
    instead: 'requests go over the HTTP/2 session with the host (agent/link/http2-dispatcher.ts)',
  },
]

/** Keeps them out. What they are needed for fails with an error that says so. */
export const absentModules: Plugin = {
  name: 'absent-modules',
  setup({ onResolve, onLoad }) {
    for (const { importer, modules, instead } of TABLE) {
      onResolve({ filter: modules }, ({ path, importer: file }) =>
        file.split('\\').join('/').includes(`/node_modules/${importer}/`)
          ? { path: `${importer}/${path}`, namespace: 'absent', pluginData: instead }
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
    `${path} is not part of the agent's bundle: ${instead}; see host/image/agent-absent.ts`,
  )
}
