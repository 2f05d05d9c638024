/** The changes of a turn, put before the person at its end: nothing is applied without a word. */

import type { ToolCallContent } from '@agentclientprotocol/sdk'
import type { CleanText } from '#specs/protocol/shown-text.ts'
import type { ApplySummary, Host, ReviewItem, RunChanges, RunState } from '../index.ts'
import { type Buffers, unsavedBase } from './buffers.ts'
import { withOrigin } from './diff-origin.ts'
import type { Editor } from './editor.ts'
import { placeOf, textContent } from './tool-calls.ts'
import { message } from './updates.ts'

export interface ReviewParts {
  readonly host: Host
  readonly editor: Editor
  readonly buffers: Buffers
  readonly words: CleanText
  readonly by: string
}

const diffsMax = 100
const diffMaxBytes = 256 * 1024
const diffsMaxBytes = 4 * 1024 * 1024
const namedMax = 50

/** Applies what is neither flagged nor in conflict, or asks first. @param signal withdraws the question */
export async function reviewChanges(
  parts: ReviewParts,
  { runId, state, isAsked }: { readonly runId: string; readonly state: RunState; readonly isAsked: boolean },
  signal: AbortSignal,
): Promise<void> {
  if ((state.changes?.entries ?? 0) === 0) return
  const changes = await parts.host.changes(runId)
  const items = await changes.review()
  parts.buffers.know(items.map(({ path }) => path))
  // Stopped, or the editor has gone, meanwhile.
  if (signal.aborted) return
  // As in the terminal: what did not complete is applied only by a person who saw it.
  const isWhole = state.end?.outcome === 'completed' && state.heldBack === null
  if (!isAsked && isWhole) return await apply(parts, changes, 'all')
  const selection = await askForChanges(parts, changes, items, signal)
  if (selection !== undefined) return await apply(parts, changes, selection)
  const later = `The changes are not applied. \`/apply\` applies them; to review them: \`caisson workspace diff ${runId}\``
  await parts.editor.tell([message(`${later}\n\n`)])
}

/** Applies what is neither flagged nor in conflict, or the selection. */
export async function apply(
  { editor, buffers, words, by }: ReviewParts,
  changes: RunChanges,
  selection: Selection,
): Promise<void> {
  const wanted = (await changes.review()).filter((item) => isChosen(item, selection))
  const { held, texts } = await buffers.settle(changes, wanted)
  const summary = await changes.apply(await without(held, changes, selection), { by })
  const told = { ...summary, conflicts: [...summary.conflicts, ...held] }
  await editor.tell([message(`${describe(told, changes.runId, words)}\n\n`)])
  await buffers.refresh(changes, summary, texts)
}

type Selection = 'all' | { readonly paths: readonly string[]; readonly exact?: boolean }

function isChosen({ path, flagged }: ReviewItem, selection: Selection): boolean {
  return selection === 'all' ? flagged === undefined : selection.paths.includes(path)
}

/** The selection as the files are by now, but for what is held. */
async function without(
  held: readonly { readonly path: string }[],
  changes: RunChanges,
  selection: Selection,
): Promise<Selection> {
  if (held.length === 0) return selection
  const names = new Set(held.map(({ path }) => path))
  const left = (await changes.review()).filter(
    (item) => isChosen(item, selection) && item.state.kind !== 'conflict' && !names.has(item.path),
  )
  return { paths: left.map(({ path }) => path), exact: true }
}

async function askForChanges(
  { editor, buffers, words }: ReviewParts,
  changes: RunChanges,
  items: readonly ReviewItem[],
  signal: AbortSignal,
): Promise<'all' | { paths: string[] } | undefined> {
  const { runId, directory } = changes
  const flagged = items.filter((item) => item.flagged !== undefined)
  const toolCallId = `${runId}/changes`
  const title = `Apply ${items.length === 1 ? 'the change' : `the ${items.length} changes`} to ${words.line(directory, 200)}`
  const places = items.flatMap(({ path }) => placeOf(directory, path) ?? []).slice(0, diffsMax)
  const content = [
    ...flagNotes(flagged, words),
    ...(await diffsOf(changes, items, { words, texts: await buffers.read(items) })),
  ]
  const call = { toolCallId, title, kind: 'edit' as const, status: 'pending' as const }
  await editor.tell([
    { sessionUpdate: 'tool_call', ...call, content, locations: places.map((path) => ({ path })) },
  ])
  const options = [
    {
      optionId: 'apply',
      name: flagged.length === 0 ? 'Apply' : 'Apply what is not flagged',
      kind: 'allow_once' as const,
    },
    ...(flagged.length === 0
      ? []
      : [
          { optionId: 'apply-flagged', name: 'Apply all, also what is flagged', kind: 'allow_once' as const },
        ]),
    { optionId: 'keep', name: 'Do not apply', kind: 'reject_once' as const },
  ]
  const chosen = await editor.askPermission({ toolCall: { ...call, content }, options }, signal)
  const option = chosen?.outcome.outcome === 'selected' ? chosen.outcome.optionId : undefined
  const isTaken = option === 'apply' || option === 'apply-flagged'
  await editor.tell([
    { sessionUpdate: 'tool_call_update', toolCallId, status: isTaken ? 'completed' : 'failed' },
  ])
  if (option === 'apply') return 'all'
  return option === 'apply-flagged' ? { paths: items.map(({ path }) => path) } : undefined
}

function flagNotes(flagged: readonly ReviewItem[], words: CleanText): ToolCallContent[] {
  if (flagged.length === 0) return []
  const lines = flagged
    .slice(0, namedMax)
    .map((item) => `- ${words.line(item.path, 300)}: ${words.line(item.flagged ?? '')}`)
  return [textContent(['Flagged, because programs on your machine may run them:', ...lines].join('\n'))]
}

/** Whole texts of both sides, as far as they have room; other changes are named. */
async function diffsOf(
  changes: RunChanges,
  items: readonly ReviewItem[],
  { words, texts }: { readonly words: CleanText; readonly texts: ReadonlyMap<string, string> },
): Promise<ToolCallContent[]> {
  const diffs: ToolCallContent[] = []
  const others: ReviewItem[] = []
  let bytes = 0
  for (const [at, item] of items.entries()) {
    const found = at < diffsMax ? await diffOf(changes, item, texts.get(item.path)) : undefined
    if (found === undefined || bytes + found.bytes > diffsMaxBytes) others.push(item)
    else {
      bytes += found.bytes
      diffs.push(found.diff)
    }
  }
  return [...diffs, ...namesOf(others, changes.runId, words)]
}

/** Undefined for what is no text, or too long. @param text as the editor has the file */
async function diffOf(
  changes: RunChanges,
  item: ReviewItem,
  text: string | undefined,
): Promise<{ readonly bytes: number; readonly diff: ToolCallContent } | undefined> {
  const place = placeOf(changes.directory, item.path)
  const isText =
    ['added', 'modified', 'deleted'].includes(item.change) &&
    item.binary !== true &&
    [item.before, item.after].every((side) => side === undefined || side.kind === 'file')
  if (place === undefined || !isText) return undefined
  const { host, run } = await changes.versions(item.path)
  const [before, after] = [host, run].map((side) => ('content' in side ? side.content : undefined))
  const bytes = Math.max(before?.length ?? 0, after?.length ?? 0)
  if ((before ?? after) === undefined || bytes > diffMaxBytes) return undefined
  const oldText = (await unsavedBase(changes, item.path, text)) ?? before?.toString('utf8') ?? null
  const operation = item.change === 'added' ? 'add' : item.change === 'deleted' ? 'delete' : 'modify'
  const newText = after?.toString('utf8') ?? ''
  return { bytes, diff: withOrigin({ type: 'diff', path: place, newText, oldText }, { operation }) }
}

/** Nobody applies what is not at least named. */
function namesOf(others: readonly ReviewItem[], runId: string, words: CleanText): ToolCallContent[] {
  if (others.length === 0) return []
  const left = others.length - namedMax
  const lines = others
    .slice(0, namedMax)
    .map(({ change, path, after }) => `- ${change}: ${words.line(path, 300)}${linkOf(after, words)}`)
  const rest = left <= 0 ? [] : [`- ${left} more; \`caisson workspace diff ${runId}\` shows all`]
  return [textContent(['Changed without a diff here:', ...lines, ...rest].join('\n'))]
}

function linkOf(after: ReviewItem['after'], words: CleanText): string {
  return after?.kind === 'link' ? ` (a link to ${words.line(after.target ?? '', 300)})` : ''
}

function describe(summary: ApplySummary, runId: string, words: CleanText): string {
  const { applied, leftOut, conflicts, failed, already, stopped } = summary
  const named = (title: string, held: readonly { path: string; reason: string }[]) =>
    held.length === 0
      ? []
      : [
          `${title}:`,
          ...held
            .slice(0, namedMax)
            .map(({ path, reason }) => `- ${words.line(path, 300)}: ${words.line(reason)}`),
        ]
  const count = applied.length + already.length
  return [
    `Applied ${count} ${count === 1 ? 'change' : 'changes'}. \`/undo\` restores the files.`,
    ...named('Left out', leftOut),
    ...named('In conflict', conflicts),
    ...named('Failed', failed),
    ...(stopped === undefined ? [] : [`Stopped: ${words.line(stopped.message)}`]),
    ...(leftOut.length === 0 ? [] : [`To apply them too: \`caisson workspace apply ${runId} PATH\``]),
  ].join('\n')
}
