/** The questions of all runs that wait, with their number on the icon of the extension. */
import * as vscode from 'vscode'
import { ago } from '../../page/parts/text.ts'
import { type Question, untilOf } from '../../page/questions/question.ts'
import { keyOf, type Overview } from '../runs/overview.ts'
import { plainLine } from '../session/text.ts'
import { bodyOf, headOf, questionText } from './describe-question.ts'

export class QuestionsView implements vscode.TreeDataProvider<Question>, vscode.Disposable {
  readonly #overview: Overview
  readonly #changed = new vscode.EventEmitter<undefined>()
  readonly #view: vscode.TreeView<Question>
  readonly #parts: vscode.Disposable
  readonly onDidChangeTreeData = this.#changed.event

  constructor(overview: Overview) {
    this.#overview = overview
    this.#view = vscode.window.createTreeView('caisson.questions', { treeDataProvider: this })
    this.#parts = vscode.Disposable.from(
      this.#view,
      this.#changed,
      overview.onChange(() => this.#draw()),
    )
  }

  getChildren(question?: Question): Question[] {
    return question === undefined ? [...this.#overview.questions] : []
  }

  getTreeItem(question: Question): vscode.TreeItem {
    const item = new vscode.TreeItem(headOf(question))
    const prompt = this.#overview.find(question.runId)?.prompt ?? ''
    item.id = keyOf(question)
    item.description = `${plainLine(bodyOf(question), 120)} · ${ago(question.at, Date.now())}`
    item.tooltip = questionText(question, prompt).slice(0, 2_000)
    item.contextValue = 'question'
    item.iconPath = new vscode.ThemeIcon(untilOf(question.approval) === undefined ? 'question' : 'watch')
    item.command = { command: 'caisson.answer', title: 'Answer', arguments: [question] }
    return item
  }

  dispose(): void {
    this.#parts.dispose()
  }

  #draw(): void {
    const waiting = this.#overview.questions.filter(({ approval }) => untilOf(approval) === undefined).length
    this.#view.badge =
      waiting === 0 ? undefined : { value: waiting, tooltip: `${waiting} waiting for your answer` }
    this.#changed.fire(undefined)
  }
}
