// Which npm packages a bundle was made of, as the lock file beside their node_modules pins them. It asks no registry.

import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'

const NpmPackage = z.strictObject({
  name: z.string().min(1).max(214),
  version: z.string().min(1).max(200),
  /** SPDX expression, as the package says. */
  license: z.string().max(400).exactOptional(),
  /** Of the package's archive, in hex. */
  sha512: z
    .string()
    .regex(/^[0-9a-f]{128}$/)
    .exactOptional(),
})
export type NpmPackage = z.infer<typeof NpmPackage>

/** The content of a bundle's `packages.json`. */
export const NpmPackages = z.array(NpmPackage).max(10_000)

const LockFile = z.object({
  packages: z.record(
    z.string(),
    z.object({
      version: z.string().optional(),
      license: z.string().optional(),
      integrity: z.string().optional(),
    }),
  ),
})

/**
 * The packages of `files` (absolute paths), sorted by name and version; files outside node_modules belong to none.
 * @throws when a package is not in the lock file: the bundle would contain an unpinned package
 */
export async function describeNpmPackages(files: readonly string[]): Promise<NpmPackage[]> {
  const folders = new Set(files.map(folderOf).filter((folder) => folder !== undefined))
  const packages = await Promise.all([...folders].map(describe))
  // One version may lie in several folders.
  const byName = new Map(packages.map((entry) => [`${entry.name}@${entry.version}`, entry]))
  return [...byName].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, entry]) => entry)
}

/** `…/node_modules/@scope/name`, the innermost one. */
function folderOf(file: string): string | undefined {
  return /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/.exec(file.split(path.sep).join('/'))?.[0]
}

async function describe(folder: string): Promise<NpmPackage> {
  const root = folder.slice(0, folder.indexOf('/node_modules/'))
  const lock = LockFile.parse(JSON.parse(await readFile(path.join(root, 'package-lock.json'), 'utf8')))
  const entry = lock.packages[folder.slice(root.length + 1)]
  const name = folder.slice(folder.lastIndexOf('/node_modules/') + '/node_modules/'.length)
  if (entry?.version === undefined) throw new Error(`${name} is not in ${root}/package-lock.json; run npm ci`)
  const [, digest] = /\bsha512-([\w+/]{86}==)/.exec(entry.integrity ?? '') ?? []
  return {
    name,
    version: entry.version,
    ...(entry.license === undefined ? {} : { license: entry.license }),
    ...(digest === undefined ? {} : { sha512: Buffer.from(digest, 'base64').toString('hex') }),
  }
}
