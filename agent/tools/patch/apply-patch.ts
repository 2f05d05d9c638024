/** `apply_patch`: one change over several files, all or nothing. A patch that deletes files requires approval. */

import * as z from 'zod'
import { nameInLine } from '#specs/node/path-text.ts'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import { Count } from '#specs/protocol/text.ts'
import {
  defineTool,
  type FileEdit,
  type Tool,
  type ToolContext,
  toolFailure,
  toolSuccess,
} from '../../tool-calls/tool.ts'
import {
  type FileToolsOptions,
  formatSize,
  isInFolders,
  refuseFolders,
  withPlace,
} from '../../workspace/file-access.ts'
import { commitPatch } from './patch-commit.ts'
import { parseEnvelope } from './patch-envelope.ts'
import { badPatch, type FilePatch } from './patch-model.ts'
import { type StagedFile, type StageParts, stagePatch } from './patch-stage.ts'
import { parseUnified } from './patch-unified.ts'

/** Maximum notes reported per file. */
const maxNotes = 10

const inputSchema = z.strictObject({
  patch: z
    .string()
    .min(1)
    .max(limits.frameMaxBytes)
    .describe('The patch: a unified diff, or the form from "*** Begin Patch" to "*** End Patch"'),
})

const outputSchema = z.strictObject({
  files: z.array(
    z.strictObject({
      path: z.string(),
      action: z.enum(['add', 'update', 'delete']),
      /** New path; absent: unchanged. */
      to: z.string().optional(),
      addedLines: Count,
      removedLines: Count,
      /** How hunks matched that were not exactly at their line numbers. */
      notes: z.array(z.string()),
    }),
  ),
})

export function createApplyPatch(
  options: FileToolsOptions = {},
): Tool<typeof inputSchema, typeof outputSchema> {
  return defineTool({
    name: 'apply_patch',
    description: `Changes, adds, renames and deletes up to ${patchMaxFiles} text files of the workspace at once: all of the patch is done, or nothing. Takes a unified diff (git's too: new, deleted and renamed files, modes), or "*** Begin Patch" with "*** Update File: PATH", "*** Add File: PATH", "*** Delete File: PATH", "*** Move to: PATH", "@@" and lines that begin with a space, "-" or "+", up to "*** End Patch". Lines that stay or go must be as they are in the file, and in one place only: line numbers and counts may be wrong, the text may not. A person may have to allow a patch that deletes files.`,
    inputSchema,
    outputSchema,
    requiresApproval: false,
    async asks({ patch }) {
      const files = await readPatch(patch)
      return files.ok && files.value.some(({ action }) => action === 'delete')
    },
    readOnly: false,
    async preview({ patch }, context) {
      const shown = await withStage(options, patch, context, (staged) => toolSuccess(describeStage(staged)))
      return shown.ok ? shown.value : `This call will fail: ${shown.error.message}`
    },
    async execute({ patch }, context) {
      return await withStage(options, patch, context, (staged, parts) => {
        if (context.signal.aborted) return toolFailure('cancelled', 'Cancelled; nothing was changed.')
        const done = commitPatch(staged, parts)
        if (!done.ok) return done
        context.tell?.({
          writes: staged.flatMap(({ patch: { path, to } }) => (to === undefined ? [path] : [path, to])),
          edits: staged.flatMap(editOf),
        })
        return toolSuccess({ files: staged.map(describeFile) })
      })
    },
    render: ({ files }) =>
      files
        .flatMap(({ path, action, to, addedLines, removedLines, notes }) => [
          `${pastOf[action]} ${nameInLine(path)}${to === undefined ? '' : `, now ${nameInLine(to)}`} (+${addedLines} -${removedLines})`,
          ...notes.map((note) => `  ${note}`),
        ])
        .join('\n'),
  })
}

const pastOf = { add: 'Added', update: 'Updated', delete: 'Deleted' } as const

/** Parses and stages the patch; closes all descriptors at the end. */
async function withStage<T>(
  options: FileToolsOptions,
  patch: string,
  reader: ToolContext,
  action: (staged: readonly StagedFile[], parts: StageParts) => Result<T>,
): Promise<Result<T>> {
  const files = await readPatch(patch)
  if (!files.ok) return files
  const named = files.value.flatMap(({ path, to }) => (to === undefined ? [path] : [path, to]))
  const inFolders = named.find((path) => isInFolders(options, path))
  if (inFolders !== undefined) return refuseFolders(inFolders)
  return await withPlace(options, '.', {}, (_, root) => {
    using scope = new DisposableStack()
    const parts = { root, scope, ledger: options.ledger, reader }
    const staged = stagePatch(files.value, parts)
    return staged.ok ? action(staged.value, parts) : staged
  })
}

/** Nothing for a file whose content stays, or that was not read. */
function editOf({ patch, read, bytes }: StagedFile): FileEdit[] {
  const { path, to, action } = patch
  if (action === 'delete') return read === undefined ? [] : [{ path, before: read.text, after: '' }]
  return bytes === undefined ? [] : [{ path: to ?? path, before: read?.text ?? '', after: `${bytes}` }]
}

function describeFile({ patch, change }: StagedFile): z.output<typeof outputSchema>['files'][number] {
  const { path, action, to } = patch
  const more = change.notes.length - maxNotes
  const notes = [...change.notes.slice(0, maxNotes), ...(more > 0 ? [`and ${more} more`] : [])]
  const lines = { addedLines: change.added, removedLines: change.removed }
  return { path, action, ...(to === undefined ? {} : { to }), ...lines, notes }
}

/** Preview for the approver: every file with its change, deletions first; then the lines. */
function describeStage(staged: readonly StagedFile[]): string {
  const sorted = staged.toSorted(
    (a, b) => Number(b.patch.action === 'delete') - Number(a.patch.action === 'delete'),
  )
  const heads = sorted.map((file) => {
    const { patch, change, source } = file
    const stat = patch.action === 'delete' ? source?.stat() : undefined
    const size = stat?.ok === true ? `, ${formatSize(stat.value.size)}` : ''
    const mode = patch.mode === undefined ? '' : `, mode ${patch.mode.toString(8)}`
    const to = patch.to === undefined ? '' : ` to ${patch.to}`
    return `${to === '' ? patch.action : 'move'} ${patch.path}${to} (+${change.added} -${change.removed}${size}${mode})`
  })
  return [...heads, '', ...sorted.flatMap(({ patch }) => describeHunks(patch))].join('\n').trimEnd()
}

function describeHunks({ path, hunks }: FilePatch): string[] {
  return hunks.flatMap(({ lines }) => [`${path}:`, ...lines.map(({ op, text }) => `${op} ${text}`), ''])
}

/** Maximum files in one patch. */
const patchMaxFiles = 300

/** Parses a unified diff as git or diff write it, or the format that begins with `*** Begin Patch`. */
export async function readPatch(text: string): Promise<Result<readonly FilePatch[]>> {
  const lines = unwrap(text)
  const files = isEnvelope(lines) ? parseEnvelope(lines) : await parseUnified(lines)
  if (!files.ok) return files
  if (files.value.length === 0) return badPatch('it changes nothing', 1)
  if (files.value.length > patchMaxFiles) {
    return toolFailure(
      'too_large',
      `the patch changes ${files.value.length} files, the bound is ${patchMaxFiles}: give it in parts.`,
    )
  }
  return toolSuccess(files.value)
}

/**
 * Whether a line is the format's mark. Leading blanks are allowed only at the head; elsewhere they begin a hunk line.
 */
function isEnvelope(lines: readonly string[]): boolean {
  const first = lines.find((line) => line.trim() !== '') ?? ''
  return [first.trimStart(), ...lines].some((line) => /^\*\*\* Begin Patch\s*$/.test(line))
}

/**
 * The lines without a surrounding code fence. Removes CR when the whole patch uses CR LF: then it is the patch's line
 * end, not the file's.
 */
function unwrap(text: string): readonly string[] {
  const lines = text.replace(/^\ufeff/, '').split('\n')
  if (lines.at(-1) === '') lines.pop()
  const isCrlf = lines.length > 1 && lines.every((line) => line.endsWith('\r'))
  const plain = isCrlf ? lines.map((line) => line.slice(0, -1)) : lines
  const first = plain.findIndex((line) => line.trim() !== '')
  const last = plain.findLastIndex((line) => line.trim() !== '')
  const isFenced =
    last > first && /^```[\w-]*\s*$/.test(plain[first] ?? '') && /^```\s*$/.test(plain[last] ?? '')
  // Blanked rather than removed, so that line numbers hold.
  return isFenced ? plain.map((line, at) => (at === first || at === last ? '' : line)) : plain
}
