/** The extension: puts its parts together when VS Code starts it, and ends them with it. */
import type * as vscode from 'vscode'
import { registerChangeCommands } from './changes/apply-commands.ts'
import { DiffDocuments } from './changes/diff-documents.ts'
import { RunChanges } from './changes/run-changes.ts'
import { Notices } from './questions/notices.ts'
import { registerQuestionCommands } from './questions/question-commands.ts'
import { QuestionsView } from './questions/questions-view.ts'
import { Following } from './runs/following.ts'
import { Overview } from './runs/overview.ts'
import { registerRunCommands } from './runs/run-commands.ts'
import { RunLog } from './runs/run-log.ts'
import { RunView } from './runs/run-view.ts'
import { RunsView } from './runs/runs-view.ts'
import { registerStartCommands } from './runs/start-run.ts'
import { StatusBar } from './runs/status-bar.ts'
import { registerAccessCommands } from './session/access-commands.ts'
import { Session } from './session/session.ts'

/** Set by the build: the version of Caisson. */
declare const extensionVersion: string

export function activate({ secrets, subscriptions }: vscode.ExtensionContext): void {
  const session = new Session(secrets, extensionVersion)
  const overview = new Overview(session)
  const following = new Following(session)
  const changes = new RunChanges(session)
  const documents = new DiffDocuments(session, changes)
  const log = new RunLog(following)
  const view = new RunView(overview, following, changes)
  subscriptions.push(
    ...[session, overview, following, changes, documents, log, view],
    new RunsView(overview),
    new QuestionsView(overview),
    new Notices(session, overview),
    new StatusBar(session, overview),
    registerAccessCommands(session, overview.refresh),
    registerQuestionCommands(session, overview),
    registerRunCommands({ session, overview, following, log, view }),
    registerStartCommands(session, overview),
    registerChangeCommands({ session, changes, documents, shownRun: () => view.runId }),
    session.onChange(() => {
      if (session.access === 'searching') overview.refresh()
    }),
  )
  overview.refresh()
}
