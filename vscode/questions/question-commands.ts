/** Shows a question whole, as a document of plain text, and asks for the answer. */
import * as vscode from 'vscode'
import type { Question } from '../../page/questions/question.ts'
import type { Overview } from '../runs/overview.ts'
import { registerCommands } from '../session/commands.ts'
import type { Session } from '../session/session.ts'
import { plainLine } from '../session/text.ts'
import { askPerson } from './answering.ts'
import { bodyOf, headOf, questionText } from './describe-question.ts'

const scheme = 'caisson-question'
/** Questions whose documents can be open. */
const maxKept = 50

export function registerQuestionCommands(session: Session, overview: Overview): vscode.Disposable {
  const texts = new Map<string, string>()
  const answer = async (given: unknown) => {
    const question = given === undefined ? await choose(overview) : known(overview, given)
    if (question === undefined) return
    const uri = vscode.Uri.from({
      scheme,
      path: `/${question.runId}/${question.approval.approvalId}/Question`,
    })
    texts.delete(uri.path)
    texts.set(uri.path, questionText(question, overview.find(question.runId)?.prompt ?? ''))
    for (const oldest of [...texts.keys()].slice(0, -maxKept)) texts.delete(oldest)
    await vscode.window.showTextDocument(await vscode.workspace.openTextDocument(uri), {
      preview: true,
      preserveFocus: true,
    })
    if (await askPerson(session.client, question)) {
      await closeTabsOf(uri)
      overview.refresh()
    }
  }
  return vscode.Disposable.from(
    vscode.workspace.registerTextDocumentContentProvider(scheme, {
      provideTextDocumentContent: ({ path }) => texts.get(path) ?? 'This question is no longer known here.',
    }),
    registerCommands(session, { answer }),
  )
}

async function choose({ questions }: Overview): Promise<Question | undefined> {
  if (questions.length === 0) {
    void vscode.window.showInformationMessage('No run waits for an answer.')
    return undefined
  }
  const items = questions.map((question) => ({
    label: headOf(question),
    description: plainLine(bodyOf(question), 120),
    question,
  }))
  return (await vscode.window.showQuickPick(items, { title: 'Answer which question?' }))?.question
}

async function closeTabsOf(uri: vscode.Uri): Promise<void> {
  const tabs = vscode.window.tabGroups.all.flatMap((group) => group.tabs)
  const mine = tabs.filter(
    ({ input }) => input instanceof vscode.TabInputText && input.uri.toString() === uri.toString(),
  )
  await vscode.window.tabGroups.close(mine)
}

/** Anything in the editor can call a command: only a question that the service listed is shown and answered. */
function known({ questions }: Overview, given: unknown): Question | undefined {
  const { runId, approval } = Object(given) as { runId?: unknown; approval?: unknown }
  const { approvalId } = Object(approval) as { approvalId?: unknown }
  const found = questions.find((each) => each.runId === runId && each.approval.approvalId === approvalId)
  if (found === undefined) throw new Error('This question no longer waits for an answer.')
  return found
}
