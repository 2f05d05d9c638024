/** What a person does with a run: opens it, sends messages, pauses, cancels and forks it, looks into its VM. */
import * as vscode from 'vscode'
import { programOf } from '../session/access-commands.ts'
import { registerCommands } from '../session/commands.ts'
import type { Session } from '../session/session.ts'
import { plainLine } from '../session/text.ts'
import { labelOf } from './describe-run.ts'
import type { Following } from './following.ts'
import { forkRun } from './fork-run.ts'
import type { Overview, Run } from './overview.ts'
import type { RunLog } from './run-log.ts'
import type { RunView } from './run-view.ts'

export interface RunParts {
  readonly session: Session
  readonly overview: Overview
  readonly following: Following
  readonly log: RunLog
  readonly view: RunView
}

export function registerRunCommands(parts: RunParts): vscode.Disposable {
  const { session, overview, log, view } = parts
  /** Does something with the run of a row, the shown run, or one that the person chooses. */
  const withRun = (use: (run: Run) => Promise<void> | void) => async (given: unknown) => {
    const run = await runOf(given, parts)
    if (run === undefined) return
    await use(run)
    overview.refresh()
  }
  const call = (name: 'pauseRun' | 'unpauseRun' | 'resumeRun') =>
    withRun(async ({ id }) => void (await session.client.call(name, { params: { run: id } })))
  return registerCommands(session, {
    openRun: withRun(async (run) => {
      view.show(run.id)
      await log.open(run.id, run.prompt)
    }),
    openLog: withRun((run) => log.open(run.id, run.prompt)),
    message: withRun((run) => sendMessage(session, run)),
    pauseRun: call('pauseRun'),
    unpauseRun: call('unpauseRun'),
    resumeRun: call('resumeRun'),
    cancelRun: withRun((run) => cancelRun(session, run)),
    forkRun: withRun(async (run) => {
      const forked = await forkRun(parts, run)
      if (forked === undefined) return
      view.show(forked)
      await log.open(forked, run.prompt)
    }),
    openTerminal: withRun((run) => openTerminal(session, run)),
  })
}

/** @param given an id, or a row of a view */
async function runOf(given: unknown, { overview, view }: RunParts): Promise<Run | undefined> {
  const { run } = Object(given) as { run?: { id?: unknown } }
  const id = typeof given === 'string' ? given : (run?.id ?? (given === undefined ? view.runId : undefined))
  const known = typeof id === 'string' ? overview.find(id) : undefined
  if (known !== undefined) return known
  const items = overview.runs.map((each) => ({
    label: labelOf(each),
    description: plainLine(each.status, 40),
    run: each,
  }))
  return (await vscode.window.showQuickPick(items, { title: 'Which run?' }))?.run
}

async function sendMessage(session: Session, run: Run): Promise<void> {
  const text = await vscode.window.showInputBox({
    title: 'Message the agent',
    prompt: `The agent reads it on its next turn: ${labelOf(run)}`,
    placeHolder: 'Leave the tests as they are',
    ignoreFocusOut: true,
  })
  if (text === undefined || text.trim() === '') return
  await session.client.call('sendMessage', { params: { run: run.id }, body: { text: text.trim() } })
}

/** Closing the dialog cancels nothing. */
async function cancelRun(session: Session, run: Run): Promise<void> {
  const [cancel, now] = ['Cancel the Run', 'End Its VM at Once']
  const chosen = await vscode.window.showWarningMessage(
    'Cancel this run?',
    {
      modal: true,
      detail: `${labelOf(run)}\nThe agent ends in order and its changes are kept, unless you end its VM at once.`,
    },
    cancel,
    now,
  )
  if (chosen === undefined) return
  const body = chosen === now ? { now: true } : {}
  await session.client.call('cancelRun', { params: { run: run.id }, body })
}

/** A shell in the VM needs the control socket of the run, so the machine of the service. */
function openTerminal(session: Session, run: Run): void {
  if (!session.isLocal)
    throw new Error(`The service is on another machine. Open a shell there: caisson vm shell ${run.id}`)
  vscode.window
    .createTerminal({
      name: `VM: ${labelOf(run).slice(0, 40)}`,
      shellPath: programOf(),
      shellArgs: ['vm', 'shell', run.id],
    })
    .show()
}
