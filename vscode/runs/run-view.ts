/** The run that was chosen: its plan as it proceeds, its sub-agents, and its changes down to hunks. */
import * as vscode from 'vscode'
import type { RunChanges } from '../changes/run-changes.ts'
import { type Change, canApply, type Hunk } from '../changes/sides.ts'
import { plainLine } from '../session/text.ts'
import { labelOf } from './describe-run.ts'
import type { Following, RunUse } from './following.ts'
import type { Overview } from './overview.ts'

type Node =
  | { readonly kind: 'section'; readonly title: 'Plan' | 'Sub-agents' | 'Changes' }
  | { readonly kind: 'step'; readonly id: string; readonly title: string; readonly state: string }
  | { readonly kind: 'change'; readonly runId: string; readonly path: string; readonly change: Change }
  | {
      readonly kind: 'hunk'
      readonly runId: string
      readonly path: string
      readonly hunk: Hunk
      readonly number: number
    }

const stateIcons: Readonly<Record<string, readonly [icon: string, color?: string]>> = {
  pending: ['circle-outline'],
  running: ['loading~spin'],
  completed: ['pass', 'testing.iconPassed'],
  failed: ['error', 'testing.iconFailed'],
  skipped: ['debug-step-over'],
  cancelled: ['circle-slash'],
}
const changeIcons = {
  added: ['diff-added', 'gitDecoration.addedResourceForeground'],
  modified: ['diff-modified', 'gitDecoration.modifiedResourceForeground'],
  deleted: ['diff-removed', 'gitDecoration.deletedResourceForeground'],
  mode: ['diff-renamed'],
  unsupported: ['warning'],
} as const

export class RunView implements vscode.TreeDataProvider<Node>, vscode.Disposable {
  readonly #overview: Overview
  readonly #following: Following
  readonly #changes: RunChanges
  readonly #changed = new vscode.EventEmitter<undefined>()
  readonly #view: vscode.TreeView<Node>
  readonly #parts: vscode.Disposable
  #use: RunUse | undefined
  #listener: vscode.Disposable | undefined
  #readFor = ''
  #drawn = ''
  readonly onDidChangeTreeData = this.#changed.event

  constructor(overview: Overview, following: Following, changes: RunChanges) {
    this.#overview = overview
    this.#following = following
    this.#changes = changes
    this.#view = vscode.window.createTreeView<Node>('caisson.run', { treeDataProvider: this })
    this.#parts = vscode.Disposable.from(
      this.#view,
      this.#changed,
      overview.onChange(() => this.#draw()),
      changes.onChange(() => this.#draw()),
    )
  }

  /** Id of the run that is shown. */
  get runId(): string | undefined {
    return this.#use?.run.runId
  }

  show(runId: string): void {
    if (runId === this.runId) return
    this.#end()
    this.#use = this.#following.use(runId)
    this.#listener = this.#use.run.onChange(() => this.#draw())
    this.#changes.keepOnly(runId)
    this.#readFor = ''
    void vscode.commands.executeCommand('setContext', 'caisson.hasRun', true)
    this.#draw()
  }

  getChildren(node?: Node): Node[] {
    const run = this.#use?.run
    if (run === undefined) return []
    const { plan, agents, steps } = run.history.state
    const changes = this.#changes.of(run.runId)
    if (node === undefined) {
      const titles = [
        ...(plan === null ? [] : (['Plan'] as const)),
        ...(Object.keys(agents).length === 0 ? [] : (['Sub-agents'] as const)),
        ...(changes.length === 0 ? [] : (['Changes'] as const)),
      ]
      return titles.map((title) => ({ kind: 'section', title }))
    }
    if (node.kind === 'change')
      return node.change.hunks.map((hunk, index) => ({
        ...{ kind: 'hunk', runId: run.runId, path: node.path, hunk, number: index + 1 },
      }))
    if (node.kind !== 'section') return []
    if (node.title === 'Changes')
      return changes.map((change) => ({ kind: 'change', runId: run.runId, path: change.path, change }))
    if (node.title === 'Sub-agents')
      return Object.entries(agents).map(([id, { state, brief }]) => ({
        ...{ kind: 'step', id, title: `${id.slice(5)}: ${brief}`, state },
      }))
    return (plan?.steps ?? []).map(({ id, title }) => {
      const state = Object.hasOwn(steps, id) ? steps[id]?.state : undefined
      return { kind: 'step', id, title, state: state ?? 'pending' }
    })
  }

  getTreeItem(node: Node): vscode.TreeItem {
    const { Expanded, Collapsed, None } = vscode.TreeItemCollapsibleState
    switch (node.kind) {
      case 'section': {
        const item = new vscode.TreeItem(node.title, Expanded)
        item.id = node.title
        return item
      }
      case 'step': {
        const item = new vscode.TreeItem(plainLine(node.title, 160))
        item.id = `step ${node.id}`
        // The picture says these two; a screen reader says all.
        if (node.state !== 'pending' && node.state !== 'completed') item.description = node.state
        item.accessibilityInformation = { label: `${plainLine(node.title, 160)}, ${node.state}` }
        item.tooltip = `${plainLine(node.title, 500)} (${node.state})`
        item.iconPath = iconOf(stateIcons[node.state] ?? ['circle-outline'])
        return item
      }
      case 'change':
        return changeItem(node.change, node.change.hunks.length > 1 ? Collapsed : None, node)
      case 'hunk': {
        const { newStart, newLines } = node.hunk
        const item = new vscode.TreeItem(`Hunk ${node.number}`)
        item.id = `hunk ${node.path} ${node.hunk.id}`
        item.description =
          newLines === 0 ? `at line ${newStart}` : `lines ${newStart} to ${newStart + newLines - 1}`
        item.contextValue = 'hunk'
        item.command = { command: 'caisson.openChange', title: 'Open the change', arguments: [node] }
        return item
      }
    }
  }

  dispose(): void {
    this.#end()
    this.#parts.dispose()
  }

  #end(): void {
    this.#listener?.dispose()
    this.#use?.dispose()
    this.#use = undefined
  }

  #draw(): void {
    const use = this.#use
    if (use === undefined) return
    const { runId, history, connection } = use.run
    const run = this.#overview.find(runId)
    const { changes, applied, end } = history.state
    this.#view.description = run === undefined ? runId : labelOf(run)
    this.#view.message = connection === 'broken' ? 'Connecting to the service…' : ''
    const isLive = end === null && run?.end === null
    void vscode.commands.executeCommand('setContext', 'caisson.runIsLive', isLive)
    void vscode.commands.executeCommand(
      'setContext',
      'caisson.runHasChanges',
      this.#changes.of(runId).length > 0,
    )
    void vscode.commands.executeCommand(
      'setContext',
      'caisson.runHasApplied',
      (run?.applied ?? applied ?? 0) > 0,
    )
    // Another surface may have applied some.
    const readFor = changes === null || end === null ? '' : `${runId} ${run?.applied ?? applied}`
    if (readFor !== '' && readFor !== this.#readFor) void this.#changes.read(runId).catch(() => undefined)
    this.#readFor = readFor
    // A tree that is drawn again takes its buttons from under the pointer.
    const { plan, steps, agents } = history.state
    const drawn = JSON.stringify([runId, plan, steps, agents, this.#changes.of(runId)])
    if (drawn === this.#drawn) return
    this.#drawn = drawn
    this.#changed.fire(undefined)
  }
}

function changeItem(
  change: Change,
  collapsible: vscode.TreeItemCollapsibleState,
  node: Node,
): vscode.TreeItem {
  const cut = change.path.lastIndexOf('/')
  const item = new vscode.TreeItem(plainLine(change.path.slice(cut + 1)), collapsible)
  const words = [
    ...(cut < 0 ? [] : [plainLine(change.path.slice(0, cut), 80)]),
    ...(change.flagged === undefined ? [] : ['flagged']),
    ...(canApply(change) ? [] : [plainLine(change.state.kind, 40)]),
  ]
  item.id = `change ${change.path}`
  item.description = words.join(' · ')
  item.tooltip = [
    plainLine(change.path, 500),
    ...(change.flagged === undefined ? [] : [plainLine(change.flagged, 500)]),
  ].join('\n')
  item.contextValue = canApply(change) ? 'change' : 'heldChange'
  item.iconPath = iconOf(
    change.flagged === undefined ? changeIcons[change.change] : ['warning', 'charts.orange'],
  )
  item.command = { command: 'caisson.openChange', title: 'Open the change', arguments: [node] }
  return item
}

function iconOf([icon, color]: readonly [icon: string, color?: string]): vscode.ThemeIcon {
  return new vscode.ThemeIcon(icon, color === undefined ? undefined : new vscode.ThemeColor(color))
}
