/** Registers commands whose failures become one message for the person. */
import * as vscode from 'vscode'
import type { Session } from './session.ts'

export type Command = (...given: unknown[]) => Promise<void> | void

/** @param commands by their name behind `caisson.` */
export function registerCommands(
  session: Session,
  commands: Readonly<Record<string, Command>>,
): vscode.Disposable {
  const registered = Object.entries(commands).map(([name, command]) =>
    vscode.commands.registerCommand(`caisson.${name}`, async (...given: unknown[]) => {
      try {
        await command(...given)
      } catch (error) {
        void vscode.window.showErrorMessage(session.note(error))
      }
    }),
  )
  return vscode.Disposable.from(...registered)
}
