// The content key of a root: a digest over everything that decides its bytes. Not in it: the agent (a disk of its
// own), tests, and the Packer template, which only wraps what the recipe made.

import { createHash } from 'node:crypto'
import { readdir, readFile, stat } from 'node:fs/promises'
import path from 'node:path'
import { ImageError } from './image-error.ts'
import { isMissing } from './manifest.ts'

/** Files and folders of the recipe that decide the root's bytes. */
const inputs = [
  'build.sh',
  'echo',
  'floor',
  'guest',
  'initramfs',
  'lib',
  'packages.list',
  'packages.lock.json',
  'packages.mjs',
  'sbom.mjs',
] as const

export type Architecture = 'amd64' | 'arm64'

export interface RecipeKey {
  /** sha256 in hex. */
  readonly key: string
  /** Path below the recipe to sha256, sorted. */
  readonly inputs: Readonly<Record<string, string>>
}

/** @throws {ImageError} `sources_missing` when the recipe is not whole */
export async function readRecipeKey(recipe: string, arch: Architecture): Promise<RecipeKey> {
  const files = (await Promise.all(inputs.map((name) => listFiles(recipe, name)))).flat().sort()
  const digests = files.map(async (name) => {
    const file = path.join(recipe, name)
    const hash = createHash('sha256').update(await readFile(file))
    // A program that lost its execute bit makes another image.
    const executable = ((await stat(file)).mode & 0o100) !== 0
    return [name, hash.update(executable ? 'x' : '-').digest('hex')] as const
  })
  const table = await Promise.all(digests)
  const text = [`caisson image 1 ${arch}`, ...table.map(([name, digest]) => `${digest} ${name}`)].join('\n')
  return { key: createHash('sha256').update(text).digest('hex'), inputs: Object.fromEntries(table) }
}

async function listFiles(recipe: string, name: string): Promise<string[]> {
  try {
    if (!(await stat(path.join(recipe, name))).isDirectory()) return [name]
    const entries = await readdir(path.join(recipe, name), { recursive: true, withFileTypes: true })
    return entries
      .filter((entry) => entry.isFile())
      .map((entry) => path.relative(recipe, path.join(entry.parentPath, entry.name)))
      .filter((file) => !file.split(path.sep).includes('__pycache__'))
  } catch (cause) {
    if (!isMissing(cause)) throw cause
    throw new ImageError(
      'sources_missing',
      `the recipe has no ${path.join(recipe, name)}`,
      'install the package again',
      {
        cause,
      },
    )
  }
}
