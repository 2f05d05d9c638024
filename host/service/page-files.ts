/**
 * The files of the web page. The installed package brings them; a checkout makes them from `page/` when a service starts,
 * so that they are never older than their source.
 */
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import type { BuildOptions } from 'esbuild'
import { CaissonError, errorMessage } from '#specs/errors.ts'

/** By name, as the page asks for them below `/page/`; `index.html` is the page itself. */
export type PageFiles = ReadonlyMap<string, Uint8Array>

const names = ['index.html', 'app.js', 'app.css', 'worker.js', 'icon.svg'] as const
/** Of a checkout; beside the compiled host in a package. */
const folder = path.resolve(import.meta.dirname, '../../page')

const options = {
  bundle: true,
  write: false,
  metafile: true,
  outdir: 'out',
  format: 'esm',
  platform: 'browser',
  target: ['es2024', 'chrome125', 'firefox128', 'safari18'],
  conditions: ['caisson-source'],
  jsx: 'automatic',
  jsxImportSource: 'preact',
  minify: true,
  sourcemap: false,
  legalComments: 'none',
  charset: 'utf8',
  logLevel: 'silent',
} satisfies BuildOptions

/** @throws {CaissonError} `internal` when a checkout's source does not build */
export async function readPage(): Promise<PageFiles> {
  if (existsSync(path.join(folder, 'main.tsx'))) return (await bundlePage()).files
  const files = await Promise.all(
    names.map(async (name) => [name, await readFile(path.join(folder, name))] as const),
  )
  return new Map(files)
}

/** Makes the files from their source. Only a checkout has it. @returns `inputs`: the absolute paths of all sources */
export async function bundlePage(): Promise<{
  readonly files: PageFiles
  readonly inputs: readonly string[]
}> {
  try {
    const { build } = await import('esbuild')
    const { outputFiles, metafile } = await build({
      ...options,
      absWorkingDir: folder,
      entryPoints: { app: path.join(folder, 'main.tsx'), worker: path.join(folder, 'worker.ts') },
    })
    const built = outputFiles.map((file) => [path.basename(file.path), file.contents] as const)
    const copied = ['index.html', 'icon.svg'].map(
      async (name) => [name, await readFile(path.join(folder, name))] as const,
    )
    return {
      files: new Map([...built, ...(await Promise.all(copied))]),
      inputs: Object.keys(metafile.inputs).map((input) => path.resolve(folder, input)),
    }
  } catch (cause) {
    throw new CaissonError(
      'internal',
      `the page could not be built: ${errorMessage(cause).slice(0, 1_000)}`,
      {
        remedy: 'correct the source in page/ and start the service again',
        cause,
      },
    )
  }
}
