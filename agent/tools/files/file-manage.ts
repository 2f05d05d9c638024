/** `move_file` and `delete_file`: change names, not content. A link itself is moved or deleted, never its target. */
import * as z from 'zod'
import { fileFailure } from '#specs/node/file-error.ts'
import { nameInLine } from '#specs/node/path-text.ts'
import type { Place } from '#specs/node/place.ts'
import type { Result } from '#specs/protocol/error.ts'
import { Count } from '#specs/protocol/text.ts'
import { defineTool, type Tool, toolFailure, toolSuccess } from '../../tool-calls/tool.ts'
import {
  type FileToolsOptions,
  formatSize,
  isInFolders,
  pathArgument,
  refuseFolders,
  shownPath,
  withPlace,
} from '../../workspace/file-access.ts'
import {
  countTree,
  emptyDirectory,
  removeMaxDepth,
  TooDeepError,
  type TreeCount,
} from '../../workspace/remove-tree.ts'
import { factsOf, textBefore } from './file-text.ts'

/** Maximum names in a preview. */
const PREVIEW_NAMES = 20

const moveInput = z.strictObject({
  from: pathArgument.describe('File or directory to move, relative to the workspace'),
  to: pathArgument.describe('Its new path, relative to the workspace; missing directories are made'),
  overwrite: z.boolean().default(false).describe('Replace a file that is at the new path'),
})
const moveOutput = z.strictObject({ from: z.string(), to: z.string() })

export function createMoveFile(options: FileToolsOptions = {}): Tool<typeof moveInput, typeof moveOutput> {
  return defineTool({
    name: 'move_file',
    description:
      'Moves or renames a file or directory within the workspace. "to" is the whole new path, not the directory to move into.',
    inputSchema: moveInput,
    outputSchema: moveOutput,
    requiresApproval: false,
    readOnly: false,
    async execute({ from, to, overwrite }, context) {
      const { ledger } = options
      if (isInFolders(options, to)) return refuseFolders(to)
      return await withPlace(options, from, { links: 'keep' }, (source, root) => {
        const what = source.stat()
        if (!what.ok) return what
        if (source.path === '') return toolFailure('invalid_input', 'The workspace itself cannot be moved.')
        const found = root.locate(to.replace(/\/+$/, ''), { links: 'keep', createParents: true })
        if (!found.ok) return found
        using target = found.value
        const there = target.stat()
        if (there.ok) {
          const refused = refuseTarget(target, there.value.isDirectory(), source, overwrite)
          if (refused !== undefined) return refused
          if (what.value.isDirectory())
            return toolFailure('already_exists', `${target} is a file; delete it first.`)
        }
        const known = overwrite ? ledger?.check(context, target) : undefined
        if (known?.ok === false) return known
        const moved = source.renameTo(target, { replace: overwrite })
        if (!moved.ok) return moved
        context.tell?.({ writes: [source.path, target.path] })
        ledger?.move(context, source.path, target.path)
        ledger?.note(context, source, 'absent')
        return toolSuccess({ from: shownPath(source), to: shownPath(target) })
      })
    },
    render: ({ from, to }) => `Moved ${nameInLine(from)} to ${nameInLine(to)}.`,
  })
}

function refuseTarget(
  target: Place,
  isDirectory: boolean,
  source: Place,
  overwrite: boolean,
): ReturnType<typeof toolFailure> | undefined {
  if (isDirectory) {
    const inside = `${target.path === '' ? '' : `${target.path}/`}${source.name}`
    return toolFailure(
      'already_exists',
      `${target} is a directory; to move into it, set "to" to "${inside}".`,
    )
  }
  if (overwrite) return undefined
  return toolFailure('already_exists', `${target} exists already; set overwrite, or choose another path.`)
}

const deleteInput = z.strictObject({
  path: pathArgument.describe('File, link or directory to delete, relative to the workspace'),
  recursive: z.boolean().default(false).describe('Delete a directory with all that is in it'),
})
const deleteOutput = z.strictObject({
  path: z.string(),
  /** Counts of deleted files (with links) and directories, and the files' total size. */
  files: Count,
  directories: Count,
  bytes: Count,
})

export function createDeleteFile(
  options: FileToolsOptions = {},
): Tool<typeof deleteInput, typeof deleteOutput> {
  return defineTool({
    name: 'delete_file',
    description:
      'Deletes a file, a link or, with recursive, a directory and all in it. A person may have to allow it first.',
    inputSchema: deleteInput,
    outputSchema: deleteOutput,
    requiresApproval: true,
    readOnly: false,
    async preview({ path }) {
      const preview = await withPlace(options, path, { links: 'keep' }, describeDeletion)
      return preview.ok ? preview.value : `This call will fail: ${preview.error.message}`
    },
    async execute({ path, recursive }, context) {
      const { ledger } = options
      return await withPlace(options, path, { links: 'keep' }, (place) => {
        const stat = place.stat()
        if (!stat.ok) return stat
        if (place.path === '') return toolFailure('invalid_input', 'The workspace itself cannot be deleted.')
        if (!stat.value.isDirectory()) {
          const known = ledger?.check(context, place)
          if (known?.ok === false) return known
          const before = stat.value.isFile() ? textBefore(place) : undefined
          const removed = place.unlink()
          if (!removed.ok) return removed
          context.tell?.(factsOf(place, before, ''))
          ledger?.note(context, place, 'absent')
          const bytes = stat.value.isFile() ? stat.value.size : 0
          return toolSuccess({ path: place.path, files: 1, directories: 0, bytes })
        }
        const emptied = recursive
          ? empty(place, context.signal)
          : toolSuccess({ files: 0, directories: 0, bytes: 0 })
        if (!emptied.ok) return emptied
        const removed = place.removeDirectory()
        if (!removed.ok) return recursive ? removed : notEmpty(place, removed.error.code, removed)
        context.tell?.({ writes: [place.path] })
        ledger?.forgetBelow(context, place.path)
        return toolSuccess({ path: place.path, ...emptied.value, directories: emptied.value.directories + 1 })
      })
    },
    render: ({ path, files, directories, bytes }) =>
      `Deleted ${nameInLine(path)}: ${countText({ files, directories, bytes })}.`,
  })
}

function empty(place: Place, signal: AbortSignal): Result<TreeCount> {
  const opened = place.openDirectory()
  if (!opened.ok) return opened
  using directory = opened.value
  return tryTree(`cannot delete all of ${place}, part of it is gone`, () => emptyDirectory(directory, signal))
}

function tryTree<T>(doing: string, action: () => T): Result<T> {
  try {
    return toolSuccess(action())
  } catch (thrown) {
    if (thrown instanceof TooDeepError) {
      return toolFailure(
        'limit_reached',
        `${doing}: more than ${removeMaxDepth} levels deep. Use run_bash with rm -r.`,
      )
    }
    if (thrown instanceof Error && thrown.name === 'AbortError') {
      return toolFailure('cancelled', `${doing}: it was cancelled.`)
    }
    return fileFailure(doing, thrown)
  }
}

function notEmpty<T>(place: Place, code: string, otherwise: T): T | ReturnType<typeof toolFailure> {
  if (code !== 'already_exists') return otherwise
  return toolFailure(
    'already_exists',
    `The directory ${place} is not empty; set recursive to delete all in it.`,
  )
}

/** Preview for the person who approves the call. */
function describeDeletion(place: Place): Result<string> {
  const stat = place.stat()
  if (!stat.ok) return stat
  if (stat.value.isSymbolicLink()) return toolSuccess(`the symbolic link ${place} (what it points to stays)`)
  if (!stat.value.isDirectory()) return toolSuccess(`the file ${place} (${formatSize(stat.value.size)})`)
  const opened = place.openDirectory()
  if (!opened.ok) return opened
  using directory = opened.value
  return tryTree(`cannot look into ${place}`, () => {
    const names: string[] = []
    const count = countTree(directory, (path) => {
      if (names.length < PREVIEW_NAMES) names.push(path)
    })
    const hidden = count.files + count.directories - names.length
    const more = hidden > 0 ? [`… and ${hidden} more`] : []
    return [
      `the directory ${place} with ${countText(count)}:`,
      ...names.map((name) => `  ${name}`),
      ...more,
    ].join('\n')
  })
}

function countText({ files, directories, bytes }: TreeCount): string {
  return `${files} files and ${directories} directories, ${formatSize(bytes)}`
}
