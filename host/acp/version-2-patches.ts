/** Diffs of version 1, which have both texts, as those of version 2, which have what happened to a path and a patch. Pure. */
import path from 'node:path'
import type { ToolCallContent } from '@agentclientprotocol/sdk'
import type * as v2 from '@agentclientprotocol/sdk/experimental/v2'
import { type StructuredPatch, structuredPatch } from 'diff'
import { type Diff, type DiffOrigin, originOf } from './diff-origin.ts'

type Hunk = StructuredPatch['hunks'][number]

const patchMaxMs = 1_000

/** Parts of one file become one patch. */
export function patchesOf(content: readonly ToolCallContent[]): v2.ToolCallContent[] {
  const given: (v2.ToolCallContent | Diff[])[] = []
  for (const part of content) {
    const last = given.at(-1)
    if (part.type !== 'diff') given.push(part as v2.ToolCallContent)
    else if (Array.isArray(last) && last[0]?.path === part.path) last.push(part)
    else given.push([part])
  }
  return given.map((part) => (Array.isArray(part) ? diffOf(part) : part))
}

function diffOf(parts: readonly Diff[]): v2.ToolCallContent {
  const [first] = parts as [Diff]
  const { path: file } = first
  const { operation } = originOf(first)
  const hunks = parts.flatMap((part) => hunksOf(part))
  return {
    ...{ type: 'diff', changes: [{ operation, path: file }] },
    ...(hunks.length === 0
      ? {}
      : { patch: { format: 'git_patch', text: patchText(file, operation, hunks) } }),
  } as v2.ToolCallContent
}

/** None where the texts differ too much to be compared in time. */
function hunksOf(diff: Diff): Hunk[] {
  const { oldText, newText } = diff
  const options = { context: 3, timeout: patchMaxMs }
  const patch = structuredPatch('a', 'b', oldText ?? '', newText, undefined, undefined, options)
  const { lines = { old: 1, new: 1 } } = originOf(diff)
  return (patch?.hunks ?? []).map((hunk) => ({
    ...hunk,
    oldStart: hunk.oldStart + lines.old - 1,
    newStart: hunk.newStart + lines.new - 1,
  }))
}

/** As `git diff` writes it; paths are those of the file system, without the first `/`. */
function patchText(file: string, operation: DiffOrigin['operation'], hunks: readonly Hunk[]): string {
  const name = nameOf(file)
  const lines = [
    `diff --git ${quoted(`a/${name}`)} ${quoted(`b/${name}`)}`,
    ...(operation === 'add' ? ['new file mode 100644'] : []),
    ...(operation === 'delete' ? ['deleted file mode 100644'] : []),
    `--- ${operation === 'add' ? '/dev/null' : quoted(`a/${name}`)}`,
    `+++ ${operation === 'delete' ? '/dev/null' : quoted(`b/${name}`)}`,
    ...hunks.flatMap(({ oldStart, oldLines, newStart, newLines, lines: own }) => [
      `@@ -${rangeOf(oldStart, oldLines)} +${rangeOf(newStart, newLines)} @@`,
      ...own,
    ]),
  ]
  return `${lines.join('\n')}\n`
}

const nameOf = (file: string): string => file.split(path.sep).join('/').replace(/^\//, '')

/** As git quotes a name that would end its line. */
function quoted(name: string): string {
  return /["\\\p{Cc}]/u.test(name) ? JSON.stringify(name) : name
}

/** The start of an empty side is the line before it. */
function rangeOf(start: number, lines: number): string {
  return `${lines === 0 ? Math.max(0, start - 1) : start},${lines}`
}
