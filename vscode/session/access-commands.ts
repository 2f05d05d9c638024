/** Sign-in and sign-out, and the choice and start of a service. */
import * as vscode from 'vscode'
import { type Command, registerCommands } from './commands.ts'
import type { Session } from './session.ts'

/** @param refresh looks for the service at once */
export function registerAccessCommands(session: Session, refresh: () => void): vscode.Disposable {
  const signIn: Command = async () => {
    const address = session.signInAddress
    if (address === undefined) {
      void vscode.window.showInformationMessage('The service of this machine needs no token.')
      return
    }
    const token = await vscode.window.showInputBox({
      title: 'Sign in to the service',
      prompt: `Token, API key or JWT for ${address}`,
      password: true,
      ignoreFocusOut: true,
    })
    if (token === undefined || token.trim() === '') return
    await session.signIn(token.trim(), address)
    refresh()
  }
  return registerCommands(session, {
    signIn,
    signOut: async () => {
      await session.signOut()
      refresh()
    },
    refresh,
    startService: () => startService(),
    chooseService: async () => {
      await vscode.commands.executeCommand('workbench.action.openSettings', 'caisson.service')
    },
    showProblem: () => void vscode.window.showWarningMessage(session.problem),
    openPage: async () => {
      // Without the token: a browser keeps addresses.
      if (session.address !== undefined) await vscode.env.openExternal(vscode.Uri.parse(session.address))
      else
        void vscode.window.showInformationMessage(
          'The service printed the address of its page when it started.',
        )
    },
  })
}

/** The person sees its output, and ends it there. */
function startService(): void {
  const folders = (vscode.workspace.workspaceFolders ?? []).filter(({ uri }) => uri.scheme === 'file')
  const words = folders.flatMap(({ uri }) => ['--allow-workspace', uri.fsPath])
  vscode.window
    .createTerminal({ name: 'caisson serve', shellPath: programOf(), shellArgs: ['serve', ...words] })
    .show()
}

/** The program `caisson`: a setting of the machine, which VS Code takes from no workspace. */
export function programOf(): string {
  return vscode.workspace.getConfiguration('caisson').get<string>('program', '').trim() || 'caisson'
}
