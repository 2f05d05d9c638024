/** A goal as a run in a VM. Its changes are applied nowhere; `host.changes` has them. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { CaissonError } from '#specs/errors.ts'
import { type Host, type RunOptions, toTaskAnswer } from '../host/index.ts'
import { type Goal, requireLoaded } from './goal.ts'
import type { AgentResult } from './options.ts'

/** @throws {CaissonError} where the run cannot be started */
export async function runInVm(job: Goal, host: Host): Promise<AgentResult> {
  const { goal, signal } = job
  requireLoaded(job)
  await using workspace = await openWorkspace(job.agent.workspace)
  const run = await host.run({ ...runOptions(job), prompt: goal, workspace: workspace.directory, signal })
  const cancel = () => void run.cancel({ by: 'the application', now: true }).catch(() => undefined)
  signal.addEventListener('abort', cancel, { once: true })
  try {
    if (signal.aborted) cancel()
    const result = await run.result()
    const trace = await host.trace(run.id)
    // The caller wrote them. Any other note waits for a person.
    if (trace.some(({ tool }) => tool === 'governance_note'))
      await (await host.runNotes(run.id)).keepThoseIn(goal, 'the application')
    const answer = toTaskAnswer(result, trace)
    const { status, output } = signal.aborted
      ? { status: 'error' as const, output: CaissonError.from(signal.reason).message }
      : answer
    return { status, output, trace, runId: run.id }
  } finally {
    signal.removeEventListener('abort', cancel)
  }
}

function runOptions({ options, agent, given, note }: Goal): Omit<RunOptions, 'prompt'> {
  const { context, tools } = options
  const { model, onApproval } = agent
  return {
    ...(context === undefined ? {} : { context: { context } }),
    ...(tools === undefined ? {} : { tools }),
    ...(model === undefined ? {} : { model }),
    ...(onApproval === undefined
      ? { approvals: { interactive: false } }
      : {
          onApproval: ({ tool, arguments: given, preview }, context) =>
            onApproval({ tool, arguments: given, preview }, context),
        }),
    onNotes: note,
    extensions: { hostTools: given.tools },
  }
}

/** Without a directory of the application a new, empty one, which is removed with the goal. */
async function openWorkspace(
  given: string | undefined,
): Promise<AsyncDisposable & { readonly directory: string }> {
  const directory = given ?? (await mkdtemp(path.join(tmpdir(), 'caisson-goal-')))
  return {
    directory,
    [Symbol.asyncDispose]: async () => {
      if (given === undefined) await rm(directory, { recursive: true, force: true })
    },
  }
}
