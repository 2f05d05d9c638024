// The image that a VM boots: kernel, initramfs, read-only root, and the agent's disk. Finds it, builds what is
// missing, and refuses one whose bytes are not those of its manifest.

import path from 'node:path'
import { type AgentDisk, ensureAgentDisk, findAgentDisk } from './agent-disk.ts'
import { buildRoot } from './build-root.ts'
import { errorOfCache } from './image-error.ts'
import type { ImageManifest } from './manifest.ts'
import type { Architecture } from './recipe-key.ts'
import { ensureRootImage, findRootImage, type RootImage } from './root-image.ts'
import { findSources, type ImageSources } from './sources.ts'
import { verifyFiles } from './verify.ts'

export { ImageError } from './image-error.ts'

/** Paths are absolute; the files never change once the image exists. */
export interface Image {
  /** Of the root's inputs; names the directory. */
  readonly key: string
  readonly directory: string
  readonly kernel: string
  readonly initramfs: string
  readonly root: string
  readonly agentDisk: string
  /** sha256 of the agent's bundle. */
  readonly agentDigest: string
  readonly manifest: ImageManifest
}

export interface ImageOptions {
  /** `Folders.cache`, which exists. */
  readonly cacheDir: string
  /** Lines for a person, such as `image: pack root.erofs`. */
  readonly onProgress?: (text: string) => void
  readonly signal?: AbortSignal
  /** Default `amd64`. */
  readonly arch?: Architecture
  /** Recipe and agent; default: this checkout's or package's. */
  readonly sources?: Pick<ImageSources, 'recipe' | 'agent'>
  /** Rebuild damaged parts. Absent: they are an error. */
  readonly replaceDamaged?: boolean
}

/** The present image when all of it is built, checked as at a boot; else undefined. Builds nothing. @throws {ImageError} */
export async function findImage(options: ImageOptions): Promise<Image | undefined> {
  const { agent, ...resolved } = resolve(options)
  const root = await findRootImage(resolved)
  const disk = root === undefined ? undefined : await findAgentDisk({ ...resolved, agent })
  return root === undefined || disk === undefined ? undefined : join(root, disk)
}

/** What of the present image every version of the agent shares, when that is built, checked as at a boot. @throws {ImageError} */
export async function findRoot(options: ImageOptions): Promise<RootImage | undefined> {
  return await findRootImage(resolve(options))
}

/**
 * The present image; builds root and agent disk if they are missing or their sources changed. Takes about 10 ms if
 * nothing changed. One of several processes builds the root while the others wait.
 * @throws {ImageError}
 */
export async function ensureImage(options: ImageOptions): Promise<Image> {
  const { agent, ...resolved } = resolve(options)
  try {
    const root = await ensureRootImage(resolved)
    return join(root, await ensureAgentDisk({ ...resolved, agent }))
  } catch (error) {
    throw errorOfCache(error, resolved.cacheDir)
  }
}

/** Reads every byte of the image. @throws {ImageError} `image_damaged` naming the first file that differs */
export async function verifyImage(options: ImageOptions): Promise<Image | undefined> {
  const { agent, ...resolved } = resolve(options)
  const root = await findRootImage(resolved)
  const disk = await findAgentDisk({ ...resolved, agent })
  if (root !== undefined) await verifyFiles(root.directory, root.manifest.files)
  if (disk !== undefined) await verifyFiles(disk.directory, disk.manifest.files)
  return root === undefined || disk === undefined ? undefined : join(root, disk)
}

/**
 * Resolves the packages again and writes packages.lock.json; the next {@link ensureImage} uses it. @throws {ImageError}
 */
export async function updateImageLock(options: ImageOptions): Promise<void> {
  await buildRoot({ ...resolve(options), updateLock: true })
}

function resolve({ arch = 'amd64', sources = findSources(), ...rest }: ImageOptions) {
  return {
    ...rest,
    cacheDir: path.resolve(rest.cacheDir),
    arch,
    recipe: sources.recipe,
    agent: sources.agent,
  }
}

function join({ key, directory, manifest }: RootImage, { disk, digest }: AgentDisk): Image {
  return {
    key,
    directory,
    kernel: path.join(directory, 'vmlinuz'),
    initramfs: path.join(directory, 'initramfs'),
    root: path.join(directory, 'root.erofs'),
    agentDisk: disk,
    agentDigest: digest,
    manifest,
  }
}
