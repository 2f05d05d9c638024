/** What the host's events say of a call besides its text: how a program ended, paths, and the lines that an edit changed. */
import type { AgentEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import { isPlainRelativePath } from '#specs/protocol/text.ts'
import { truncate } from '../text/truncate.ts'
import type { CallFacts, FileEdit } from './tool.ts'

type ToolEnd = Extract<AgentEvent, { type: 'tool-end' }>
type EventFacts = Pick<ToolEnd, 'exitCode' | 'signal' | 'reads' | 'writes' | 'diffs'>

const pathsMaxCount = 100
const diffsMaxCount = 20
/** Characters of all diffs of a call together. */
const diffsMaxChars = limits.textMaxChars
/** Larger texts are not compared. */
const compareMaxChars = 512 * 1024

export async function describeFacts(facts: CallFacts): Promise<EventFacts> {
  const { exitCode, signal, reads = [], writes = [], edits = [] } = facts
  const diffs = edits.length === 0 ? [] : await diffsOf(edits)
  return {
    ...(exitCode == null || exitCode < 0 || exitCode > 255 ? {} : { exitCode }),
    ...(signal == null ? {} : { signal: truncate(signal, limits.lineMaxChars) }),
    ...(reads.length === 0 ? {} : { reads: firstPaths(reads) }),
    ...(writes.length === 0 ? {} : { writes: firstPaths(writes) }),
    ...(diffs.length === 0 ? {} : { diffs }),
  }
}

function firstPaths(paths: readonly string[]): string[] {
  return paths.filter(isPlainRelativePath).slice(0, pathsMaxCount)
}

async function diffsOf(edits: readonly FileEdit[]): Promise<NonNullable<ToolEnd['diffs']>> {
  // Loaded with the first edit: most of the agent's life does without.
  const { createTwoFilesPatch } = await import('diff/lib/patch/create.js')
  const diffs: NonNullable<ToolEnd['diffs']> = []
  let leftChars = diffsMaxChars
  for (const { path, before, after } of edits) {
    if (diffs.length === diffsMaxCount) break
    if (!isPlainRelativePath(path) || before.length + after.length > compareMaxChars) continue
    const options = { context: 3, maxEditLength: 5_000, timeout: 200 }
    const patch = createTwoFilesPatch('a', 'b', before, after, undefined, undefined, options)
    if (patch === undefined) continue
    const lines = patch.split('\n').slice(3)
    const text = lines.join('\n')
    const diff = text.length <= leftChars ? text : text.slice(0, text.lastIndexOf('\n', leftChars) + 1)
    leftChars -= diff.length
    diffs.push({
      path,
      added: lines.filter((line) => line.startsWith('+')).length,
      removed: lines.filter((line) => line.startsWith('-')).length,
      ...(diff === '' ? {} : { diff: diff.toWellFormed() }),
    })
  }
  return diffs
}
