/** The list of runs by state. What waits for an answer is on top. */
import * as vscode from 'vscode'
import {
  descriptionOf,
  type Group,
  groupOf,
  groups,
  iconOf,
  kindOf,
  labelOf,
  tooltipOf,
} from './describe-run.ts'
import type { Overview, Run } from './overview.ts'

type Node = { readonly group: Group } | { readonly run: Run }

export class RunsView implements vscode.TreeDataProvider<Node>, vscode.Disposable {
  readonly #overview: Overview
  readonly #changed = new vscode.EventEmitter<undefined>()
  readonly #parts: vscode.Disposable
  readonly onDidChangeTreeData = this.#changed.event

  constructor(overview: Overview) {
    this.#overview = overview
    this.#parts = vscode.Disposable.from(
      overview.onChange(() => this.#changed.fire(undefined)),
      vscode.window.createTreeView<Node>('caisson.runs', { treeDataProvider: this }),
      this.#changed,
    )
  }

  getChildren(node?: Node): Node[] {
    const { runs } = this.#overview
    if (node === undefined)
      return groups.filter((group) => runs.some((run) => groupOf(run) === group)).map((group) => ({ group }))
    return 'group' in node ? runs.filter((run) => groupOf(run) === node.group).map((run) => ({ run })) : []
  }

  getTreeItem(node: Node): vscode.TreeItem {
    const { Expanded } = vscode.TreeItemCollapsibleState
    if ('group' in node) {
      const item = new vscode.TreeItem(node.group.charAt(0).toUpperCase() + node.group.slice(1), Expanded)
      item.id = node.group
      return item
    }
    return itemOf(node.run)
  }

  dispose(): void {
    this.#parts.dispose()
  }
}

function itemOf(run: Run): vscode.TreeItem {
  const item = new vscode.TreeItem(labelOf(run))
  const [icon, color] = iconOf(run)
  item.id = run.id
  item.description = descriptionOf(run, Date.now())
  item.tooltip = tooltipOf(run)
  item.contextValue = kindOf(run)
  item.iconPath = new vscode.ThemeIcon(icon, color === undefined ? undefined : new vscode.ThemeColor(color))
  item.command = { command: 'caisson.openRun', title: 'Open the run', arguments: [run.id] }
  return item
}
