/** Starts a run: in a folder of the window, in a folder of the explorer, or with the selection of an editor. */
import { randomUUID } from 'node:crypto'
import * as vscode from 'vscode'
import type { ServiceCall } from '../../client/index.ts'
import { registerCommands } from '../session/commands.ts'
import type { Session } from '../session/session.ts'
import type { Overview } from './overview.ts'

type Body = ServiceCall<'createRun'>['body']

/** Characters of a selection that the agent gets. */
const selectionMaxChars = 100_000

export function registerStartCommands(session: Session, overview: Overview): vscode.Disposable {
  const start = async (folder: Place | undefined, more: Partial<Body> = {}, title = 'Start a run') => {
    if (folder === undefined) return
    const prompt = await vscode.window.showInputBox({
      title,
      prompt:
        folder.path === undefined
          ? 'What should the agent do, in an empty folder?'
          : `What should the agent do on a copy of ${folder.path}?`,
      placeHolder: 'Rename draft.md to report.md',
      ignoreFocusOut: true,
    })
    if (prompt === undefined || prompt.trim() === '') return
    const { id } = await session.client.call('createRun', {
      body: {
        prompt: prompt.trim(),
        ...(folder.path === undefined ? {} : { workspace: folder.path }),
        ...more,
      },
      idempotencyKey: randomUUID(),
    })
    overview.refresh()
    await whenListed(overview, id)
    await vscode.commands.executeCommand('caisson.openRun', id)
  }
  return registerCommands(session, {
    startRun: async () => await start(await choosePlace()),
    startRunInFolder: async (uri) => {
      if (uri instanceof vscode.Uri && uri.scheme === 'file') await start({ path: uri.fsPath })
    },
    startRunFromSelection: async () => {
      const selected = selectionOf(vscode.window.activeTextEditor)
      if (selected === undefined) throw new Error('Select text in an editor first.')
      await start(selected.place, { context: { selection: selected.text } }, 'Start a run with the selection')
    },
  })
}

/** Where a run works. */
interface Place {
  /** Absolute; undefined: in an empty folder of the service. */
  readonly path: string | undefined
}

/** @returns undefined when the person closes the list */
async function choosePlace(): Promise<Place | undefined> {
  const folders = (vscode.workspace.workspaceFolders ?? []).filter(({ uri }) => uri.scheme === 'file')
  if (folders.length === 1) return { path: folders[0]?.uri.fsPath }
  const items = [
    ...folders.map(({ name, uri }) => ({ label: name, description: uri.fsPath, path: uri.fsPath })),
    { label: 'No files', description: 'a new, empty folder', path: undefined },
  ]
  return folders.length === 0
    ? { path: undefined }
    : await vscode.window.showQuickPick(items, { title: 'Which folder does the agent get a copy of?' })
}

/** The text as the editor has it, saved or not, with its place. */
function selectionOf(editor: vscode.TextEditor | undefined): { place: Place; text: string } | undefined {
  if (editor === undefined || editor.selection.isEmpty) return undefined
  const { document, selection } = editor
  const folder = vscode.workspace.getWorkspaceFolder(document.uri)
  const isOfFolder = folder !== undefined && folder.uri.scheme === 'file'
  const name = isOfFolder
    ? vscode.workspace.asRelativePath(document.uri, false)
    : 'a text that is not in the folder'
  const unsaved = document.isDirty ? ', with changes that are not saved' : ''
  const [first, last] = [selection.start.line + 1, selection.end.line + 1]
  const text = document.getText(selection).slice(0, selectionMaxChars)
  return {
    place: { path: isOfFolder ? folder.uri.fsPath : undefined },
    text: `The person selected lines ${first} to ${last} of ${name}${unsaved}:\n\n${text}`,
  }
}

async function whenListed(overview: Overview, runId: string): Promise<void> {
  for (let tries = 0; tries < 50 && overview.find(runId) === undefined; tries++)
    await new Promise((resolve) => setTimeout(resolve, 100))
}
