/** Applies changes to the files on the host: one hunk, one file, or all that is neither flagged nor in conflict. Undoes that. */
import * as vscode from 'vscode'
import type { ServiceCall, ServiceReply } from '../../client/index.ts'
import { count } from '../../page/parts/text.ts'
import { registerCommands } from '../session/commands.ts'
import type { Session } from '../session/session.ts'
import { plainLine, plainText } from '../session/text.ts'
import { type ChangedFile, changedFileOf, type DiffDocuments } from './diff-documents.ts'
import type { RunChanges } from './run-changes.ts'
import { type Change, canApply, type Hunk, hunkAt } from './sides.ts'

type Select = ServiceCall<'applyChanges'>['body']['select']

/** A row of the view. */
export interface ChangeRow extends ChangedFile {
  readonly hunk?: Hunk
}

export interface ChangeParts {
  readonly session: Session
  readonly changes: RunChanges
  readonly documents: DiffDocuments
  /** The run that the view shows. */
  readonly shownRun: () => string | undefined
}

export function registerChangeCommands(parts: ChangeParts): vscode.Disposable {
  const { session, changes, documents, shownRun } = parts
  const rowOf = (given: unknown) => readRow(given, changes)
  return registerCommands(session, {
    openChange: async (given) => {
      const { file, hunk } = rowOf(given)
      await documents.open(file, hunk)
    },
    applyFile: async (given) => {
      const { file, change } = given instanceof vscode.Uri ? ofEditor(changes) : rowOf(given)
      await apply(parts, file.runId, [change], { paths: [file.path] })
    },
    applyHunk: async (given) => {
      const { file, change, hunk } = rowOf(given)
      if (hunk !== undefined) await apply(parts, file.runId, [change], { hunks: { [file.path]: [hunk.id] } })
    },
    applyHunkAtCursor: async () => {
      const { file, change, line } = ofEditor(changes)
      const hunk = hunkAt(change.hunks, line)
      if (hunk === undefined)
        throw new Error('There is no hunk at the cursor. Put the cursor into a changed line.')
      await apply(parts, file.runId, [change], { hunks: { [file.path]: [hunk.id] } })
    },
    applyAll: async () => await applyAll(parts, shownRun()),
    undoAll: async () => await undoAll(parts, shownRun()),
  })
}

/** @throws {Error} when the row is none of a change that the service listed */
function readRow(
  given: unknown,
  changes: RunChanges,
): { file: ChangedFile; change: Change; hunk: Hunk | undefined } {
  const { runId, path, hunk } = Object(given) as { runId?: unknown; path?: unknown; hunk?: unknown }
  const change = typeof runId === 'string' && typeof path === 'string' ? changes.find(runId, path) : undefined
  if (typeof runId !== 'string' || change === undefined) throw new Error('This change is no longer there.')
  const { id } = Object(hunk) as { id?: unknown }
  return { file: { runId, path: change.path }, change, hunk: change.hunks.find((each) => each.id === id) }
}

/** The change in the diff editor that has the focus, and the line of its cursor in the new content. */
function ofEditor(changes: RunChanges): { file: ChangedFile; change: Change; line: number } {
  const editor = vscode.window.activeTextEditor
  const file = editor === undefined ? undefined : changedFileOf(editor.document.uri)
  const change = file === undefined ? undefined : changes.find(file.runId, file.path)
  if (editor === undefined || file === undefined || change === undefined)
    throw new Error('Open a change of a run first.')
  if (file.side === 'before') throw new Error('Put the cursor into the new content, on the right, first.')
  return { file, change, line: editor.selection.active.line + 1 }
}

async function apply(
  { session, changes }: ChangeParts,
  runId: string,
  chosen: readonly Change[],
  select: Select,
): Promise<void> {
  const held = chosen.find((change) => !canApply(change))
  if (held !== undefined)
    throw new Error(`${plainLine(held.path)} cannot be applied now: ${plainLine(held.state.kind, 60)}.`)
  const flagged = chosen.filter((change) => change.flagged !== undefined)
  if (flagged.length > 0 && !(await acceptsFlagged(flagged))) return
  tell(await session.client.call('applyChanges', { params: { run: runId }, body: { select } }))
  await changes.read(runId)
}

/** Closing the dialog applies nothing. */
async function acceptsFlagged(flagged: readonly Change[]): Promise<boolean> {
  const yes = 'Apply It'
  const reasons = flagged.map(({ path, flagged: why }) => `${plainLine(path)}: ${plainLine(why ?? '')}`)
  const chosen = await vscode.window.showWarningMessage(
    'This path can run code on your machine.',
    { modal: true, detail: plainText(reasons.join('\n')) },
    yes,
  )
  return chosen === yes
}

async function applyAll({ session, changes }: ChangeParts, runId: string | undefined): Promise<void> {
  if (runId === undefined) throw new Error('Choose a run first.')
  await changes.read(runId)
  const open = changes.of(runId).filter((change) => canApply(change) && change.flagged === undefined)
  if (open.length === 0) throw new Error('There is nothing that can be applied at once. Look at each change.')
  const yes = 'Apply'
  const chosen = await vscode.window.showInformationMessage(
    `Apply ${count(open.length, 'change')} to your files?`,
    { modal: true, detail: plainText(`${listOf(open)}\nFlagged paths and conflicts are left out.`) },
    yes,
  )
  if (chosen !== yes) return
  // What the dialog listed, not what became of it meanwhile.
  const select = { paths: open.map(({ path }) => path) }
  tell(await session.client.call('applyChanges', { params: { run: runId }, body: { select } }))
  await changes.read(runId)
}

async function undoAll({ session, changes }: ChangeParts, runId: string | undefined): Promise<void> {
  if (runId === undefined) throw new Error('Choose a run first.')
  const yes = 'Undo'
  const chosen = await vscode.window.showWarningMessage(
    'Undo all that was applied of this run?',
    { modal: true, detail: 'Files that you changed since stay as they are.' },
    yes,
  )
  if (chosen !== yes) return
  const { restored, conflicts } = await session.client.call('undoChanges', { params: { run: runId } })
  const more = conflicts.length === 0 ? '' : ` ${count(conflicts.length, 'path')} changed since and stayed.`
  void vscode.window.showInformationMessage(`Restored ${count(restored.length, 'path')}.${more}`)
  await changes.read(runId)
}

function tell({ applied, parts, conflicts, failed, stopped }: ServiceReply<'applyChanges'>): void {
  const partly = parts.length === 0 ? '' : ` (${count(parts.length, 'file')} in part)`
  const held = [...conflicts, ...failed].map(({ path, reason }) => `${plainLine(path)}: ${plainLine(reason)}`)
  const problems = [...held, ...(stopped === undefined ? [] : [plainLine(stopped.message)])]
  const done = `Applied ${count(applied.length, 'path')}${partly}.`
  if (problems.length === 0) void vscode.window.showInformationMessage(done)
  else void vscode.window.showWarningMessage(`${done} Not applied: ${problems.slice(0, 3).join('; ')}`)
}

function listOf(changes: readonly Change[]): string {
  const shown = changes.slice(0, 12).map(({ path, change }) => `${change} ${path}`)
  const more = changes.length - shown.length
  return [...shown, ...(more > 0 ? [`and ${count(more, 'further path')}`] : [])].join('\n')
}
