/**
 * The manifest: everything copied into the VM, path by path, with the digest of the exact bytes. JSON lines: a header,
 * the entries, the excluded paths, a final line with counts. Strict: a damaged manifest is refused completely.
 */

import { createHash } from 'node:crypto'
import { open } from 'node:fs/promises'
import { z } from 'zod'
import { LeftOut } from '#specs/protocol/event.ts'
import { describeIssues, plainMessages } from '#specs/protocol/issue-text.ts'
import { limits } from '#specs/protocol/limits.ts'
import { Count, Sha256, WorkspacePath } from '#specs/protocol/text.ts'
import { readRegular } from '../files/regular-file.ts'
import { readCountedLines } from './counted-lines.ts'
import { failureOf, type WorkspaceResult, workspaceFailure, workspaceSuccess } from './workspace-error.ts'
import { Turns } from './yield-turns.ts'

/** Its file in the folder of a run. */
export const manifestName = 'manifest.jsonl'

const Digits = z.string().regex(/^-?[0-9]{1,20}$/, 'expected a decimal number')
/** Permission bits with set-uid, set-gid and sticky. */
const FullMode = z.int().min(0).max(0o7777)

const common = { path: WorkspacePath, mode: FullMode, mtimeNs: Digits, ctimeNs: Digits, inode: Digits }
const ManifestFile = z.strictObject({
  kind: z.literal('file'),
  ...common,
  size: Count,
  sha256: Sha256,
  /** For git's index: digest of its entries without times and sizes. Absent: another file, or an unknown form. */
  indexMeaning: Sha256.optional(),
})
const ManifestDirectory = z.strictObject({ kind: z.literal('directory'), ...common })
const ManifestLink = z.strictObject({
  kind: z.literal('link'),
  ...common,
  target: z.string().max(limits.pathMaxBytes),
})
export const ManifestEntry = z.discriminatedUnion('kind', [ManifestFile, ManifestDirectory, ManifestLink])
export type ManifestEntry = z.infer<typeof ManifestEntry>

const Header = z.strictObject({
  format: z.literal('caisson-manifest-1'),
  /** The real path of the workspace on the host. */
  root: z.string().min(1),
  device: Digits,
  inode: Digits,
})
const LeftOutLine = z.strictObject({ leftOut: LeftOut })
const End = z.strictObject({ end: z.literal(true), entries: Count, leftOut: Count, bytes: Count })

export interface Manifest {
  readonly root: string
  readonly device: string
  readonly inode: string
  /** In the order of `comparePaths`. */
  readonly entries: ReadonlyMap<string, ManifestEntry>
  readonly leftOut: readonly LeftOut[]
  /** Total bytes of all files. */
  readonly bytes: number
}

/**
 * Writes the manifest (mode 0600) and returns the file's digest.
 * @throws the system's error
 */
export async function writeManifest(file: string, manifest: Manifest): Promise<string> {
  const lines = [
    { format: 'caisson-manifest-1', root: manifest.root, device: manifest.device, inode: manifest.inode },
    ...manifest.entries.values(),
    ...manifest.leftOut.map((leftOut) => ({ leftOut })),
    {
      end: true,
      entries: manifest.entries.size,
      leftOut: manifest.leftOut.length,
      bytes: manifest.bytes,
    },
  ]
  const hash = createHash('sha256')
  await using handle = await open(file, 'w', 0o600)
  for (let at = 0; at < lines.length; at += 1_000) {
    const text = lines
      .slice(at, at + 1_000)
      .map((line) => `${JSON.stringify(line)}\n`)
      .join('')
    hash.update(text)
    await handle.appendFile(text)
  }
  await handle.datasync()
  return hash.digest('hex')
}

/**
 * Reads a manifest. Failures: `damaged`, `unreadable`.
 * @param sha256 the expected digest. Absent: only the format is checked
 * @param maxLeftOut of the paths that stayed out. Absent: any number
 */
export async function readManifest(
  file: string,
  sha256?: string,
  maxLeftOut = Number.POSITIVE_INFINITY,
): Promise<WorkspaceResult<Manifest>> {
  let bytes: Buffer
  try {
    bytes = await readRegular(file)
  } catch (thrown) {
    return failureOf(`reading the manifest ${file}`, thrown)
  }
  if (sha256 !== undefined && createHash('sha256').update(bytes).digest('hex') !== sha256) {
    return damaged(file, 'its digest is not the one that the journal recorded')
  }
  try {
    const read = readCountedLines(bytes, (line) => {
      const end = End.parse(JSON.parse(line), plainMessages)
      if (end.entries > limits.workspaceMaxEntries)
        return `it has ${end.entries} files and directories, expected at most ${limits.workspaceMaxEntries}`
      if (end.leftOut > maxLeftOut)
        return `it has ${end.leftOut} excluded paths, expected at most ${maxLeftOut}`
      return { end, count: 1 + end.entries + end.leftOut }
    })
    return typeof read === 'string' ? damaged(file, read) : await parse(read.lines, read.end)
  } catch (thrown) {
    return damaged(
      file,
      thrown instanceof z.ZodError
        ? describeIssues(thrown, { root: 'a line of it', max: 1 })
        : String(thrown),
    )
  }

  async function parse(
    lines: readonly string[],
    end: z.infer<typeof End>,
  ): Promise<WorkspaceResult<Manifest>> {
    const header = Header.parse(JSON.parse(lines[0] ?? ''), plainMessages)
    const entries = new Map<string, ManifestEntry>()
    const leftOut: LeftOut[] = []
    const turns = new Turns()
    for (const [at, line] of lines.slice(1).entries()) {
      if (turns.isDue) await turns.give()
      const value: unknown = JSON.parse(line)
      if (at >= end.entries) leftOut.push(LeftOutLine.parse(value, plainMessages).leftOut)
      else {
        const entry = ManifestEntry.parse(value, plainMessages)
        entries.set(entry.path, entry)
      }
    }
    if (entries.size !== end.entries) return damaged(file, 'it names a path twice')
    const { root, device, inode } = header
    return workspaceSuccess({ root, device, inode, entries, leftOut, bytes: end.bytes })
  }
}

function damaged(file: string, why: string): WorkspaceResult<never> {
  return workspaceFailure('damaged', `the manifest ${file} was modified: ${why}; the run cannot be applied`)
}
