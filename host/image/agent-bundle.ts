// Makes one file of the agent and what it imports, for Node in the guest. Only a checkout does this: the installed
// package brings the bundle.

import path from 'node:path'
import { ImageError } from './image-error.ts'

/** Bundles `entry` (absolute path). @returns the module's text, the same for the same sources. @throws {ImageError} `bundle_failed` */
export async function bundleAgent(entry: string): Promise<Uint8Array> {
  const { build } = await import('esbuild')
  try {
    const { outputFiles } = await build({
      entryPoints: [entry],
      bundle: true,
      write: false,
      outfile: 'agent.mjs',
      format: 'esm',
      platform: 'node',
      target: 'node24',
      conditions: ['caisson-source'],
      // Names stay readable in stack traces, and the bytes do not depend on where the checkout lies.
      sourcemap: false,
      legalComments: 'inline',
      absWorkingDir: path.dirname(entry),
      logLevel: 'silent',
      // Packages in CommonJS call require for Node's own modules.
      banner: {
        js: "import { createRequire as __createRequire } from 'node:module'\nconst require = __createRequire(import.meta.url)",
      },
    })
    const [file] = outputFiles
    if (file === undefined) throw new Error('no output')
    return file.contents
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
