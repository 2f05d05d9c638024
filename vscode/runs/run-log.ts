/** The document with plan and log of a run. It follows the run while it is open, and stays at its end where the reader is. */
import * as vscode from 'vscode'
import type { Following, RunUse } from './following.ts'
import { logText } from './log-lines.ts'

const scheme = 'caisson-run'

export class RunLog implements vscode.TextDocumentContentProvider, vscode.Disposable {
  readonly #following: Following
  readonly #uses = new Map<string, RunUse & { readonly listener: vscode.Disposable }>()
  readonly #changed = new vscode.EventEmitter<vscode.Uri>()
  readonly #parts: vscode.Disposable
  readonly #lines = new Map<string, number>()
  readonly onDidChange = this.#changed.event

  constructor(following: Following) {
    this.#following = following
    this.#parts = vscode.Disposable.from(
      vscode.workspace.registerTextDocumentContentProvider(scheme, this),
      vscode.workspace.onDidCloseTextDocument(({ uri }) => {
        if (uri.scheme === scheme) this.#end(uri)
      }),
      vscode.workspace.onDidChangeTextDocument(({ document }) => {
        if (document.uri.scheme === scheme) this.#scroll(document)
      }),
      this.#changed,
    )
  }

  async open(runId: string, prompt: string): Promise<void> {
    const uri = vscode.Uri.from({ scheme, path: `/${runId}/${fileNameOf(prompt)}.log` })
    const document = await vscode.workspace.openTextDocument(uri)
    await vscode.window.showTextDocument(document, { preview: true })
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    const runId = runIdOf(uri)
    if (runId === undefined) return 'This is no run.'
    const { run } = this.#useOf(uri, runId)
    const trouble = run.connection === 'broken' ? run.problem || 'Connecting to the service…' : ''
    return logText({ history: run.history, live: run.live, trouble })
  }

  dispose(): void {
    for (const use of this.#uses.values()) vscode.Disposable.from(use, use.listener).dispose()
    this.#uses.clear()
    this.#parts.dispose()
  }

  #useOf(uri: vscode.Uri, runId: string): RunUse {
    const known = this.#uses.get(uri.toString())
    if (known !== undefined) return known
    const { run, dispose } = this.#following.use(runId)
    const use = { run, dispose, listener: run.onChange(() => this.#changed.fire(uri)) }
    this.#uses.set(uri.toString(), use)
    return use
  }

  #end(uri: vscode.Uri): void {
    const use = this.#uses.get(uri.toString())
    this.#uses.delete(uri.toString())
    this.#lines.delete(uri.toString())
    if (use !== undefined) vscode.Disposable.from(use, use.listener).dispose()
  }

  /** Who reads the end sees what arrives; who reads elsewhere is left there. */
  #scroll(document: vscode.TextDocument): void {
    const key = document.uri.toString()
    const before = this.#lines.get(key) ?? 0
    this.#lines.set(key, document.lineCount)
    for (const editor of vscode.window.visibleTextEditors) {
      const last = editor.visibleRanges.at(-1)?.end.line
      if (editor.document !== document || last === undefined || last < before - 3) continue
      const end = document.lineAt(document.lineCount - 1).range
      editor.revealRange(end, vscode.TextEditorRevealType.Default)
    }
  }
}

/** The name of a tab: of plain letters alone. */
function fileNameOf(prompt: string): string {
  const name = prompt
    .replaceAll(/[^\p{L}\p{N} _-]+/gu, ' ')
    .replaceAll(/\s+/g, ' ')
    .trim()
  return name.slice(0, 40).trim() || 'run'
}

function runIdOf({ path }: vscode.Uri): string | undefined {
  return /^\/(run-[0-9a-f]{20})\//.exec(path)?.[1]
}
