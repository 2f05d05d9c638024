// The manifest of an image or agent disk: what it holds, with digests. It reads the file as if a stranger wrote it.

import { readFile, stat } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import { errnoOf } from '#specs/node/file-error.ts'
import { describeIssues, plainMessages } from '#specs/protocol/issue-text.ts'
import { ImageError } from './image-error.ts'

const MAX_BYTES = 1024 * 1024

const Sha256 = z.string().regex(/^[0-9a-f]{64}$/)
const Line = z.string().max(400)

const FileEntry = z.strictObject({ sha256: Sha256, bytes: z.int().min(1) })
export type FileEntry = z.infer<typeof FileEntry>

/** What a VM boots, and the bill of materials beside it. */
export const imageFiles = ['vmlinuz', 'initramfs', 'root.erofs', 'sbom.cdx.json'] as const

export const ImageManifest = z.strictObject({
  manifestVersion: z.literal(1),
  /** Of all inputs: recipe, lock, guest files, architecture. */
  key: Sha256,
  /** Debian's name. */
  arch: z.enum(['amd64', 'arm64']),
  files: z.strictObject({
    vmlinuz: FileEntry,
    initramfs: FileEntry,
    'root.erofs': FileEntry,
    'sbom.cdx.json': FileEntry,
  }),
  /** What a person asks for. */
  versions: z.strictObject({ debian: Line, kernel: Line, node: Line, python: Line }),
  /** Every Debian package in it, also the kernel's, and its version. */
  packages: z.record(z.string().max(200), Line),
  /** Path below the recipe to sha256. */
  inputs: z.record(z.string().max(1000), Sha256),
})
export type ImageManifest = z.infer<typeof ImageManifest>

export const AgentManifest = z.strictObject({
  manifestVersion: z.literal(1),
  /** sha256 of the bundle; also the folder's name. */
  digest: Sha256,
  /** The bill of materials is missing where an earlier version made the disk. */
  files: z.strictObject({ 'agent.erofs': FileEntry, 'sbom.cdx.json': FileEntry.exactOptional() }),
})
export type AgentManifest = z.infer<typeof AgentManifest>

/**
 * Reads `manifest.json` in `directory`.
 * @returns undefined when there is none
 * @throws {ImageError} `image_damaged` when it cannot be read as a manifest
 */
export async function readImageManifest<T>(directory: string, schema: z.ZodType<T>): Promise<T | undefined> {
  const file = path.join(directory, 'manifest.json')
  try {
    const { size } = await stat(file)
    if (size > MAX_BYTES) throw new Error(`${size} bytes is too large`)
    return schema.parse(JSON.parse(await readFile(file, 'utf8')), plainMessages)
  } catch (cause) {
    if (isMissing(cause)) return undefined
    const seen =
      cause instanceof z.ZodError
        ? describeIssues(cause, { root: 'it', max: 1 })
        : String((cause as Error).message).slice(0, 200)
    throw damaged(directory, `${file} is not a valid manifest (${seen})`, { cause })
  }
}

/** @param seen what is wrong, with the path */
export function damaged(directory: string, seen: string, options?: ErrorOptions): ImageError {
  return new ImageError('image_damaged', seen, `remove ${directory} and run: caisson image build`, options)
}

export function isMissing(error: unknown): boolean {
  return errnoOf(error) === 'ENOENT'
}
