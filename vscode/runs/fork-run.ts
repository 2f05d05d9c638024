/** Makes a run that continues another one from an earlier moment, and starts it. */
import * as vscode from 'vscode'
import type { RunState } from '#specs/protocol/run-state.ts'
import type { Session } from '../session/session.ts'
import { plainLine } from '../session/text.ts'
import type { Following } from './following.ts'
import type { Run } from './overview.ts'

const readMs = 10_000

/** @returns its id; undefined when the person closes a form */
export async function forkRun(
  { session, following }: { readonly session: Session; readonly following: Following },
  { id }: Run,
): Promise<string | undefined> {
  using use = useOf(following, id)
  await whenRead(() => use.run.history.start !== null)
  const moment = await vscode.window.showQuickPick(momentsOf(use.run.history.state), {
    title: 'Fork the run from which moment?',
    ignoreFocusOut: true,
  })
  if (moment === undefined) return undefined
  const text = await vscode.window.showInputBox({
    title: 'Fork the run',
    prompt: 'What you say to the agent there. Empty: nothing.',
    ignoreFocusOut: true,
  })
  if (text === undefined) return undefined
  const prompts = text.trim() === '' ? {} : { prompts: [text.trim()] }
  const { runIds } = await session.client.call('forkRun', {
    params: { run: id },
    body: { at: moment.id, ...prompts },
  })
  for (const run of runIds) await session.client.call('resumeRun', { params: { run } })
  return runIds[0]
}

function momentsOf({ plan, moments, end }: RunState): { id: string; label: string }[] {
  const titles = new Map(plan?.steps.map(({ id, title }) => [id, title]))
  const last = end === null ? { id: 'now', label: 'Now' } : { id: 'end', label: 'The end' }
  const steps = Object.keys(moments).map((id) => ({
    id,
    label: `Before ${plainLine(titles.get(id) ?? id, 80)}`,
  }))
  return [last, ...steps.toReversed(), { id: 'start', label: 'The beginning' }]
}

function useOf(following: Following, id: string) {
  const use = following.use(id)
  return { run: use.run, [Symbol.dispose]: () => use.dispose() }
}

async function whenRead(isRead: () => boolean): Promise<void> {
  const until = Date.now() + readMs
  while (!isRead() && Date.now() < until) await new Promise((resolve) => setTimeout(resolve, 50))
}
