/** One entry of the status bar: what is at work and what waits, or that the service cannot be used. */
import * as vscode from 'vscode'
import { untilOf } from '../../page/questions/question.ts'
import type { Access, Session } from '../session/session.ts'
import { groupOf } from './describe-run.ts'
import type { Overview } from './overview.ts'

const words: Readonly<Record<Access, string>> = {
  searching: 'looking for the service',
  none: 'no service',
  'signed-out': 'signed out',
  unreachable: 'no answer',
  ready: '',
}

export class StatusBar implements vscode.Disposable {
  readonly #item = vscode.window.createStatusBarItem('caisson.status', vscode.StatusBarAlignment.Left)
  readonly #parts: vscode.Disposable

  constructor(session: Session, overview: Overview) {
    this.#item.name = 'Caisson'
    const draw = () => this.#draw(session, overview)
    this.#parts = vscode.Disposable.from(this.#item, session.onChange(draw), overview.onChange(draw))
    draw()
  }

  dispose(): void {
    this.#parts.dispose()
  }

  #draw({ access }: Session, { runs, questions }: Overview): void {
    const waiting = questions.filter(({ approval }) => untilOf(approval) === undefined).length
    const atWork = runs.filter((run) => groupOf(run) === 'at work').length
    const figures = [
      ...(waiting === 0 ? [] : [`$(question) ${waiting} waiting`]),
      ...(atWork === 0 ? [] : [`${atWork} at work`]),
    ]
    const state = access === 'ready' ? figures.join(', ') : words[access]
    this.#item.text = `$(vm) Caisson${state === '' ? '' : `: ${state}`}`
    this.#item.tooltip = access === 'ready' ? 'Runs and questions of Caisson' : `Caisson: ${words[access]}`
    this.#item.command = waiting > 0 ? 'caisson.questions.focus' : 'caisson.runs.focus'
    if (waiting > 0) this.#item.backgroundColor = new vscode.ThemeColor('statusBarItem.warningBackground')
    else this.#item.backgroundColor = undefined
    // Who has no service is not reminded of it.
    if (access === 'none' || access === 'searching') this.#item.hide()
    else this.#item.show()
  }
}
