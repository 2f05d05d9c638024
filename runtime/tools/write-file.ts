/** `write_file` of the library: writes a whole text file; others see the old or the new content, never a part. */
import { Buffer } from 'node:buffer'
import * as z from 'zod'
import { failure } from '#specs/node/file-error.ts'
import { limits } from '#specs/protocol/limits.ts'
import { type BuiltIn, defineBuiltIn, toOutcome } from './built-in.ts'
import { pathParameter, withinDirectory } from './directory-scope.ts'
import { inspectTarget, shownPath, writeWhole } from './workspace-file.ts'

export const writeFileTool: BuiltIn = defineBuiltIn({
  name: 'write_file',
  description: 'Writes a whole text file of the working directory; folders that are missing are made.',
  parameters: z.strictObject({
    filePath: pathParameter.describe('Path of the file, relative to the working directory'),
    content: z.string().max(limits.frameMaxBytes).describe('The whole content of the file'),
    mode: z
      .enum(['overwrite', 'create'])
      .default('overwrite')
      .describe('"create" fails if the file exists; "overwrite" replaces it'),
  }),
  readOnly: false,
  // An alias of one of its three parameters is unambiguous; content and path are never guessed.
  destructive: false,
  run: async ({ filePath, content, mode }, context) => {
    if (filePath.endsWith('/'))
      return toOutcome(
        failure('invalid_input', `${JSON.stringify(filePath)} names a folder; name a file in it.`),
      )
    return toOutcome(
      await withinDirectory(context, filePath, { createParents: true }, (place) => {
        const target = inspectTarget(place)
        if (!target.ok) return target
        const bytes = Buffer.from(content, 'utf8')
        const written = writeWhole(place, bytes, { ...target.value, replace: mode === 'overwrite' })
        if (!written.ok) return written
        const created = target.value.mode === undefined
        return { ok: true, value: { filePath: shownPath(place), created, bytes: bytes.length } }
      }),
    )
  },
})
