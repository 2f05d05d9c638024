// Makes the files of the agent and what it imports, for Node in the guest. Only a checkout does this: the installed
// package brings the bundle. What the agent imports late is a file of its own, since Node parses whole files at start
// and emulation makes that dear.

import { createHash } from 'node:crypto'
import path from 'node:path'
import { describeNpmPackages } from './agent-packages.ts'
import { ImageError } from './image-error.ts'

/** Files by name; `agent.mjs` is the entry, `packages.json` says which npm packages went in. */
export type AgentBundle = ReadonlyMap<string, Uint8Array>

/** sha256 over names and contents. */
export function digestOf(bundle: AgentBundle): string {
  const hash = createHash('sha256')
  for (const [name, content] of [...bundle].sort(([a], [b]) => (a < b ? -1 : 1))) {
    hash.update(`${name}\0${content.length}\0`).update(content)
  }
  return hash.digest('hex')
}

/** Bundles `entry` (absolute path); the same bytes for the same sources. @throws {ImageError} `bundle_failed` */
export async function bundleAgent(entry: string): Promise<AgentBundle> {
  const { build } = await import('esbuild')
  try {
    const { outputFiles, metafile } = await build({
      entryPoints: { agent: entry },
      bundle: true,
      write: false,
      metafile: true,
      outdir: 'out',
      outExtension: { '.js': '.mjs' },
      chunkNames: 'chunk-[hash]',
      splitting: true,
      format: 'esm',
      platform: 'node',
      target: 'node24',
      conditions: ['caisson-source'],
      // Names stay readable in stack traces, and the bytes do not depend on where the checkout lies.
      sourcemap: false,
      minifySyntax: true,
      legalComments: 'inline',
      absWorkingDir: path.dirname(entry),
      logLevel: 'silent',
      // Packages in CommonJS call require for Node's own modules.
      banner: {
        js: "import { createRequire as __createRequire } from 'node:module'\nconst require = __createRequire(import.meta.url)",
      },
    })
    const packages = await describeNpmPackages(
      Object.keys(metafile.inputs).map((input) => path.resolve(path.dirname(entry), input)),
    )
    return new Map([
      ...outputFiles.map(({ path: file, contents }) => [path.basename(file), contents] as const),
      ['packages.json', Buffer.from(`${JSON.stringify(packages, null, 1)}\n`)],
    ])
  } catch (cause) {
    const seen = String((cause as Error).message).slice(0, 1000)
    throw new ImageError(
      'bundle_failed',
      `the agent ${entry} could not be bundled: ${seen}`,
      'mend the source and start again',
      {
        cause,
      },
    )
  }
}
