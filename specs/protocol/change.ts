/**
 * The change set as a stream: what differs between the workspace as it went in and as the agent left it.
 * On the wire each entry is a header frame (u32 big-endian length, JSON of {@link ChangeEntry}), followed for a
 * `file` by exactly `size` bytes of content; the last header is `end`. Entries come sorted by path, parents
 * before children; a replaced entry (a file that became a directory) is one entry with the new kind.
 */
import * as z from 'zod'
import { limits } from './limits.ts'
import { Count, Line, WorkspacePath } from './text.ts'

/** Permission bits alone; set-uid, set-gid and sticky are never transferred. */
export const FileMode = z.int().min(0).max(0o777)

export const FileChange = z.strictObject({
  kind: z.literal('file'),
  path: WorkspacePath,
  mode: FileMode,
  /** Bytes of content that follow the header. */
  size: Count,
})
/** A symbolic link; its target is text, never followed. */
export const LinkChange = z.strictObject({
  kind: z.literal('link'),
  path: WorkspacePath,
  target: z.string().min(1).max(limits.pathMaxBytes),
})
export const DirectoryChange = z.strictObject({
  kind: z.literal('directory'),
  path: WorkspacePath,
  mode: FileMode,
})
/** Only the permission bits of a file or directory changed. */
export const ModeChange = z.strictObject({ kind: z.literal('mode'), path: WorkspacePath, mode: FileMode })
/** The path was deleted, a directory with its content. */
export const DeletionChange = z.strictObject({ kind: z.literal('deleted'), path: WorkspacePath })
/** An entry that cannot be transferred: a device, a FIFO, a socket, an unreadable file. */
export const UnsupportedChange = z.strictObject({
  kind: z.literal('unsupported'),
  path: WorkspacePath,
  reason: Line,
})
/** The end of the stream; its counts let the host detect truncation. */
export const ChangeEnd = z.strictObject({ kind: z.literal('end'), entries: Count, contentBytes: Count })

export const ChangeEntry = z.discriminatedUnion('kind', [
  FileChange,
  LinkChange,
  DirectoryChange,
  ModeChange,
  DeletionChange,
  UnsupportedChange,
  ChangeEnd,
])
export type ChangeEntry = z.infer<typeof ChangeEntry>

/** One changed path for people and screens. */
export const ChangedPath = z.strictObject({
  path: WorkspacePath,
  /** `moved` is not told: it is one `added` and one `deleted`. */
  kind: z.enum(['added', 'modified', 'deleted']),
  /** Lines; absent for a binary file, a link or a directory, and while they are not counted. */
  added: Count.optional(),
  removed: Count.optional(),
  /** Why a person should look at it, such as `executable`; absent: no reason is known. */
  flags: z.array(Line).max(20).optional(),
})
export type ChangedPath = z.infer<typeof ChangedPath>

/** Most paths of a look at the changes so far, and most characters of them together. */
export const lookMaxPaths = 200
export const lookMaxChars = 32 * 1024

/** What a bounded look at the workspace found: files and links that differ from the base now. */
export const WorkspaceLook = z.strictObject({
  paths: z
    .array(ChangedPath.omit({ flags: true }))
    .max(lookMaxPaths)
    .refine((paths) => paths.reduce((sum, { path }) => sum + path.length, 0) <= lookMaxChars)
    .refine((paths) => paths.every(({ path }) => path.split('/').length <= limits.changeMaxDepth + 1)),
  /** Whether a bound ended the look: there may be more. */
  isPartial: z.boolean(),
})
export type WorkspaceLook = z.infer<typeof WorkspaceLook>
