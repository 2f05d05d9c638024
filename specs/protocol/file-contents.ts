/** Content that a VM gets in the place of what the disk has, such as an editor's unsaved text: by path, and bounded. */
import * as z from 'zod'
import { Document, WorkspacePath } from './text.ts'

/** Files of one run. */
export const fileContentsMaxCount = 64
/** Bytes of all contents of one run. */
export const fileContentsMaxBytes = 4 * 1024 * 1024

/** Text, or bytes in base64. */
export const FileContent = z.union([
  Document,
  z.strictObject({ base64: z.base64().max(Math.ceil(fileContentsMaxBytes / 3) * 4) }),
])
export type FileContent = z.infer<typeof FileContent>

export const FileContents = z
  .record(WorkspacePath, FileContent)
  .refine(
    (contents) => Object.keys(contents).length <= fileContentsMaxCount,
    `expected at most ${fileContentsMaxCount} files`,
  )
