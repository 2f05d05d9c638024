// Where the recipe and the agent lie: in this checkout, or in the installed package.

import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { ImageError } from './image-error.ts'

export interface ImageSources {
  /** The package's own folder. */
  readonly packageRoot: string
  /** The folder of build.sh. */
  readonly recipe: string
  /** What the agent's bundle is made from: an entry to bundle, or the folder of the bundle. */
  readonly agent:
    | { readonly entry: string; readonly watched: readonly string[] }
    | { readonly bundle: string }
}

/** @throws {ImageError} `sources_missing` when this module lies in no package of ours */
export function findSources(): ImageSources {
  const packageRoot = findPackageRoot(import.meta.dirname)
  // Under type stripping this file is a .ts file; in the installed package it was compiled.
  const agent = import.meta.filename.endsWith('.ts')
    ? {
        entry: path.join(packageRoot, 'agent/main.ts'),
        watched: [
          'agent',
          'runtime',
          'specs',
          'package-lock.json',
          'host/image/agent-bundle.ts',
          'host/image/agent-cache.ts',
          'host/image/agent-packages.ts',
        ].map((name) => path.join(packageRoot, name)),
      }
    : { bundle: path.join(packageRoot, 'dist/agent') }
  return { packageRoot, recipe: path.join(packageRoot, 'vm-image'), agent }
}

function findPackageRoot(start: string): string {
  for (let folder = start; ; folder = path.dirname(folder)) {
    const file = path.join(folder, 'package.json')
    if (existsSync(file) && /"name":\s*"caisson"/.test(readFileSync(file, 'utf8'))) return folder
    if (folder === path.dirname(folder)) {
      throw new ImageError(
        'sources_missing',
        `no caisson package above ${start}`,
        'install the package again',
      )
    }
  }
}
