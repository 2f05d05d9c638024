/**
 * Notifications of new questions. A button answers once, and a yes is only there when the notification shows all that is
 * asked. A notification that is closed, or never seen, answers nothing: the question stays in the view.
 */
import * as vscode from 'vscode'
import type { Question } from '../../page/questions/question.ts'
import type { Overview } from '../runs/overview.ts'
import type { Session } from '../session/session.ts'
import { sentence } from '../session/text.ts'
import { answersOf, send } from './answering.ts'
import { noticeOf } from './describe-question.ts'

/** More questions at the same time are one notification. */
const maxAtOnce = 4
const review = 'Review…'

export class Notices implements vscode.Disposable {
  readonly #session: Session
  readonly #overview: Overview
  readonly #asked: vscode.Disposable

  constructor(session: Session, overview: Overview) {
    this.#session = session
    this.#overview = overview
    this.#asked = overview.onQuestions((questions) =>
      this.#tell(questions.filter((each) => this.#isWanted(each))),
    )
  }

  dispose(): void {
    this.#asked.dispose()
  }

  #tell(questions: readonly Question[]): void {
    if (questions.length > maxAtOnce) void this.#tellMany(questions.length)
    else for (const question of questions) void this.#tellOne(question)
  }

  async #tellMany(count: number): Promise<void> {
    const show = 'Show Them'
    const chosen = await vscode.window.showInformationMessage(
      `${count} questions of runs wait for you.`,
      show,
    )
    if (chosen === show) await vscode.commands.executeCommand('caisson.questions.focus')
  }

  async #tellOne(question: Question): Promise<void> {
    const prompt = this.#overview.find(question.runId)?.prompt ?? ''
    const { text, isWhole } = noticeOf(question, prompt)
    const answers = isWhole ? answersOf(question).filter(({ scope }) => scope === 'once') : []
    const yes = answers.find(({ decision, needs }) => decision === 'allow' && needs === undefined)
    const no = answers.find(({ decision }) => decision === 'deny')
    const offered = [yes, no].flatMap((answer) => (answer === undefined ? [] : [answer]))
    const chosen = await vscode.window.showInformationMessage(
      text,
      ...offered.map((answer) => sentence(answer.label)),
      review,
    )
    if (chosen === undefined) return
    const answer = offered.find(({ label }) => sentence(label) === chosen)
    try {
      if (answer === undefined) await vscode.commands.executeCommand('caisson.answer', question)
      else await send(this.#session.client, question, answer)
      this.#overview.refresh()
    } catch (error) {
      void vscode.window.showErrorMessage(this.#session.note(error))
    }
  }

  #isWanted({ runId }: Question): boolean {
    const wanted = vscode.workspace.getConfiguration('caisson').get<string>('notify', 'all')
    if (wanted !== 'workspace') return wanted !== 'none'
    const place = this.#overview.find(runId)?.workspace
    const folders = vscode.workspace.workspaceFolders ?? []
    return folders.some(({ uri }) => place === uri.fsPath || place?.startsWith(`${uri.fsPath}/`) === true)
  }
}
