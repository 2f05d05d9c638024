/** Both sides of a changed file as documents, for the diff editor of VS Code. */
import * as vscode from 'vscode'
import type { Session } from '../session/session.ts'
import { plainLine } from '../session/text.ts'
import { readChangedFile } from './changed-files.ts'
import type { RunChanges } from './run-changes.ts'
import { type Hunk, type Sides, sidesOf } from './sides.ts'

const scheme = 'caisson-change'

/** A changed file, as a document names it. */
export interface ChangedFile {
  readonly runId: string
  readonly path: string
}

export class DiffDocuments implements vscode.TextDocumentContentProvider, vscode.Disposable {
  readonly #session: Session
  readonly #changes: RunChanges
  readonly #changed = new vscode.EventEmitter<vscode.Uri>()
  readonly #sides = new Map<string, Sides>()
  readonly #open = new Map<string, ChangedFile>()
  readonly #parts: vscode.Disposable
  readonly onDidChange = this.#changed.event

  constructor(session: Session, changes: RunChanges) {
    this.#session = session
    this.#changes = changes
    this.#parts = vscode.Disposable.from(
      vscode.workspace.registerTextDocumentContentProvider(scheme, this),
      changes.onChange((runId) => void this.#refresh(runId)),
      vscode.workspace.onDidCloseTextDocument(({ uri }) => this.#close(uri)),
      this.#changed,
    )
  }

  /** @throws {Error} for a file without a diff; its message says why */
  async open(file: ChangedFile, hunk?: Hunk): Promise<void> {
    await this.#load(file)
    const name = file.path.split('/').at(-1) ?? file.path
    const title = `${plainLine(name, 80)} (changes of the run)`
    await vscode.commands.executeCommand(
      'vscode.diff',
      ...[addressOf('before', file), addressOf('after', file), title],
      {
        preview: true,
        ...(hunk === undefined ? {} : { selection: rangeOf(hunk) }),
      } satisfies vscode.TextDocumentShowOptions,
    )
    if (hunk !== undefined) showHunk(addressOf('after', file), hunk)
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    const named = changedFileOf(uri)
    const sides = named === undefined ? undefined : this.#sides.get(keyOf(named))
    return sides === undefined ? '' : sides[named?.side ?? 'after']
  }

  dispose(): void {
    this.#parts.dispose()
  }

  async #load(file: ChangedFile): Promise<void> {
    const { runId, path } = file
    if (this.#changes.find(runId, path) === undefined) await this.#changes.read(runId)
    const change = this.#changes.find(runId, path)
    if (change === undefined) throw new Error(`The run has no change of ${plainLine(path)}.`)
    if (change.diff === null)
      throw new Error(
        `There is no diff of ${plainLine(path)}: ${plainLine(change.noDiff ?? 'it is no text')}.`,
      )
    const isModified = change.change !== 'added' && change.change !== 'deleted'
    const after = isModified ? await readChangedFile(this.#session.client, runId, path) : undefined
    const sides = sidesOf(change, change.diff, after)
    if (sides === undefined)
      throw new Error(`The diff of ${plainLine(path)} does not fit its content. Read it again.`)
    this.#sides.set(keyOf(file), sides)
    this.#open.set(keyOf(file), file)
  }

  /** What is applied is no longer a difference. */
  async #refresh(runId: string): Promise<void> {
    for (const file of this.#open.values()) {
      if (file.runId !== runId) continue
      await this.#load(file).catch(() => this.#settle(file))
      for (const side of ['before', 'after'] as const) this.#changed.fire(addressOf(side, file))
    }
  }

  /** A file without a diff any more is the same on both sides. */
  #settle(file: ChangedFile): void {
    const known = this.#sides.get(keyOf(file))
    if (known !== undefined) this.#sides.set(keyOf(file), { before: known.after, after: known.after })
  }

  #close(uri: vscode.Uri): void {
    const named = changedFileOf(uri)
    if (named?.side !== 'after') return
    this.#open.delete(keyOf(named))
    this.#sides.delete(keyOf(named))
  }
}

/** Where the editor was open already, it stays where it was. */
function showHunk(uri: vscode.Uri, hunk: Hunk): void {
  const editor = vscode.window.visibleTextEditors.find(({ document }) => `${document.uri}` === `${uri}`)
  if (editor === undefined) return
  const range = rangeOf(hunk)
  editor.selection = new vscode.Selection(range.start, range.end)
  editor.revealRange(range, vscode.TextEditorRevealType.InCenterIfOutsideViewport)
}

/** Its first line in the new content. */
function rangeOf({ newStart }: Hunk): vscode.Range {
  const line = Math.max(0, newStart - 1)
  return new vscode.Range(line, 0, line, 0)
}

function keyOf({ runId, path }: ChangedFile): string {
  return `${runId} ${path}`
}

function addressOf(side: 'before' | 'after', { runId, path }: ChangedFile): vscode.Uri {
  return vscode.Uri.from({ scheme, path: `/${runId}/${side}/${path}` })
}

/** The file of a document; undefined for a document of something else. */
export function changedFileOf(
  uri: vscode.Uri,
): (ChangedFile & { readonly side: 'before' | 'after' }) | undefined {
  if (uri.scheme !== scheme) return undefined
  const [, runId, side, path] = /^\/(run-[0-9a-f]{20})\/(before|after)\/(.+)$/s.exec(uri.path) ?? []
  if (runId === undefined || path === undefined) return undefined
  return { runId, path, side: side === 'before' ? 'before' : 'after' }
}
