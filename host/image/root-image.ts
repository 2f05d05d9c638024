// The cache of roots: images/KEY/ with kernel, initramfs, root and manifest. A folder appears whole, by rename, or
// not at all; one process builds and the others wait for it.

import { mkdir, mkdtemp, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import { takeLock } from '../locks/file-lock.ts'
import { buildCancelled, buildRoot } from './build-root.ts'
import { ImageError } from './image-error.ts'
import { ImageManifest, imageFiles, readImageManifest } from './manifest.ts'
import { type Architecture, type RecipeKey, readRecipeKey } from './recipe-key.ts'
import { checkFiles, describeFiles, verifyFiles } from './verify.ts'

/** A build takes minutes; what is older was left by a killed one. */
const ABANDONED_MS = 60 * 60 * 1000
/** Longer than any build takes: after this, the lock's holder must be stopped. */
const WAIT_MS = 30 * 60 * 1000

export interface RootImage {
  readonly key: string
  readonly directory: string
  readonly manifest: ImageManifest
}

interface RootImageOptions {
  readonly cacheDir: string
  readonly recipe: string
  readonly arch: Architecture
  readonly onProgress?: (text: string) => void
  readonly signal?: AbortSignal
  /** Build again when the files are not what the manifest says; otherwise that is an error. */
  readonly replaceDamaged?: boolean
}

/** The root of the present recipe when it is built, checked as at a boot; else undefined. @throws {ImageError} */
export async function findRootImage(options: RootImageOptions): Promise<RootImage | undefined> {
  const { key } = await readRecipeKey(options.recipe, options.arch)
  return await findByKey(options.cacheDir, key)
}

async function findByKey(cacheDir: string, key: string): Promise<RootImage | undefined> {
  const directory = path.join(cacheDir, 'images', key)
  const manifest = await readImageManifest(directory, ImageManifest)
  if (manifest === undefined) return undefined
  if (manifest.key !== key) {
    throw new ImageError(
      'image_damaged',
      `${directory} holds the manifest of another image (${manifest.key})`,
      `remove ${directory} and run: caisson image build`,
    )
  }
  await checkFiles(directory, manifest.files)
  return { key, directory, manifest }
}

/** The root of the present recipe, built when it is not there. @throws {ImageError} */
export async function ensureRootImage(options: RootImageOptions): Promise<RootImage> {
  const recipeKey = await readRecipeKey(options.recipe, options.arch)
  const found = await findUsable(options, recipeKey.key)
  if (found !== undefined) return found
  const images = path.join(options.cacheDir, 'images')
  await mkdir(images, { recursive: true, mode: 0o700 })
  const { onProgress, signal } = options
  const lock = takeLock(path.join(images, `${recipeKey.key}.lock`), {
    waitMs: WAIT_MS,
    ...(signal === undefined ? {} : { signal }),
    onWait: (holder) => onProgress?.(`image: ${holder} is building it; waiting`),
  }).catch((error: unknown) => {
    throw signal?.aborted === true ? buildCancelled() : error
  })
  await using _lock = await lock
  return (await findUsable(options, recipeKey.key)) ?? (await build(options, recipeKey))
}

async function findUsable(options: RootImageOptions, key: string): Promise<RootImage | undefined> {
  try {
    return await findByKey(options.cacheDir, key)
  } catch (error) {
    if (options.replaceDamaged !== true || !(error instanceof ImageError)) throw error
    options.onProgress?.(error.message)
    return undefined
  }
}

async function build(options: RootImageOptions, { key, inputs }: RecipeKey): Promise<RootImage> {
  const { cacheDir, recipe, arch } = options
  await sweepAbandoned(cacheDir)
  const directory = path.join(cacheDir, 'images', key)
  // Named like the script's own work folders, and swept with them.
  const out = await mkdtemp(path.join(cacheDir, 'build-'))
  try {
    await buildRoot({ ...options, out })
    if ((await readRecipeKey(recipe, arch)).key !== key) {
      throw new ImageError('build_failed', 'a file of the recipe changed during the build', 'start again')
    }
    const files = await describeFiles(out, imageFiles)
    const contents = await readContents(recipe, arch)
    const manifest: ImageManifest = { manifestVersion: 1, key, arch, files, ...contents, inputs }
    await writeFile(path.join(out, 'manifest.json'), `${JSON.stringify(manifest, null, 2)}\n`)
    await rm(directory, { recursive: true, force: true })
    await rename(out, directory)
    await verifyFiles(directory, files)
    return { key, directory, manifest }
  } finally {
    await rm(out, { recursive: true, force: true })
  }
}

/** Removes work folders of builds that were killed. */
async function sweepAbandoned(cacheDir: string): Promise<void> {
  const names = (await readdir(cacheDir)).filter((name) => /^build-\w+$/.test(name))
  for (const name of names) {
    const folder = path.join(cacheDir, name)
    const age = Date.now() - ((await stat(folder).catch(() => undefined))?.mtimeMs ?? Date.now())
    if (age > ABANDONED_MS) await rm(folder, { recursive: true, force: true }).catch(() => undefined)
  }
}

const Lock = z.object({
  release: z.string(),
  architectures: z.record(
    z.string(),
    z.object({
      node: z.object({ version: z.string() }),
      packages: z.array(z.object({ role: z.string(), name: z.string(), version: z.string() })),
    }),
  ),
})

async function readContents(
  recipe: string,
  arch: Architecture,
): Promise<Pick<ImageManifest, 'versions' | 'packages'>> {
  const lock = Lock.parse(JSON.parse(await readFile(path.join(recipe, 'packages.lock.json'), 'utf8')))
  const { node, packages } = lock.architectures[arch] ?? { node: { version: '' }, packages: [] }
  return {
    versions: {
      debian: lock.release,
      kernel: packages.find(({ role }) => role === 'kernel')?.version ?? '',
      node: node.version,
      python: packages.find(({ name }) => name === 'python3')?.version ?? '',
    },
    packages: Object.fromEntries(packages.map(({ name, version }) => [name, version])),
  }
}
