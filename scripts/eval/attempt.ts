/** One attempt at a task: a run on a copy of its workspace, its changes, then the check; a hidden test has a VM of its own. */
import { mkdir, rm } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError, type Host, type RunOptions, type RunResult } from '../../host/index.ts'
import type { Attempt } from './attempts.ts'
import { type EvalTask, hiddenFolder } from './task.ts'
import { checkResult, type RunTest } from './verdict.ts'
import { writeWorkspace } from './workspace.ts'

const testTimeoutMs = 300_000
const memoryBytes = 512 * 1024 ** 2
const actor = 'the evaluation'
/** Some tasks need deletions, of a copy. What else asks, such as network access, is denied. */
const rules = [{ effect: 'allow', tool: 'delete_file' }] as const

/** Reasons of a run that say nothing of the model: the same attempt can succeed later. */
const lostReasons: ReadonlySet<string> = new Set([
  ...['environment', 'internal', 'queue_timeout', 'vm_lost', 'agent_lost'],
  ...['model_unreachable', 'model_refused', 'cancelled'],
])

export interface AttemptOptions {
  readonly attempt: number
  /** Where the workspace of the attempt is made; it is removed before and after. */
  readonly folder: string
  readonly run: Pick<RunOptions, 'model' | 'effort' | 'limits'>
  /** Cancels the attempt; its VM ends in order. */
  readonly signal?: AbortSignal
  /** Ends its VM at once. */
  readonly endNow?: AbortSignal
}

/** `lost`: the run did not start, or ended for a reason that says nothing of the model. That is no attempt. */
export type AttemptEnd =
  | { readonly kind: 'attempt'; readonly attempt: Attempt }
  | { readonly kind: 'lost'; readonly why: string; readonly costUsd: number | null }

export async function attemptTask(host: Host, task: EvalTask, options: AttemptOptions): Promise<AttemptEnd> {
  const { folder } = options
  try {
    await rm(folder, { recursive: true, force: true })
    await mkdir(folder, { recursive: true })
    await writeWorkspace(task, folder)
    return await runAndCheck(host, task, options)
  } catch (error) {
    if (!(error instanceof CaissonError)) throw error
    return { kind: 'lost', why: `${error.code}: ${error.message}`, costUsd: null }
  } finally {
    // It has files that a program of this machine would execute.
    await rm(folder, { recursive: true, force: true })
  }
}

async function runAndCheck(host: Host, task: EvalTask, options: AttemptOptions): Promise<AttemptEnd> {
  const { attempt, folder, signal } = options
  const startedAt = performance.now()
  const result = await runTask(host, task, options)
  const durationMs = Math.round(performance.now() - startedAt)
  const { costUsd, runId } = result
  if (lostReasons.has(result.reason))
    return { kind: 'lost', why: `${result.reason}: ${result.message}`, costUsd }
  if (result.changes !== null) await applyResult(host, runId)
  const { passed, problems } = await checkResult(task, folder, testInVm(host, signal))
  const { requests, inputTokens, outputTokens } = result.usage
  const { model } = await host.runs.summary(runId)
  return {
    kind: 'attempt',
    attempt: {
      ...{ task: task.name, attempt, runId, model, passed, problems: [...problems] },
      end: result.outcome === 'completed' ? 'completed' : `${result.outcome}: ${result.reason}`,
      ...{ turns: requests, inputTokens, outputTokens, costUsd, durationMs },
    },
  }
}

async function runTask(host: Host, task: EvalTask, options: AttemptOptions): Promise<RunResult> {
  const { attempt, folder, signal, endNow } = options
  const run = await host.run({
    ...options.run,
    ...(signal === undefined ? {} : { signal }),
    prompt: task.prompt,
    workspace: folder,
    vm: { memoryBytes },
    approvals: { interactive: false, rules },
    metadata: { evaluation: `${task.name}-${attempt}` },
    // Who calls says once which model answers.
    onNotes: () => undefined,
  })
  using _ = onAbort(signal, () => void run.cancel({ by: actor }))
  using _now = onAbort(endNow, () => void run.cancel({ by: actor, now: true }))
  return await run.result()
}

function onAbort(signal: AbortSignal | undefined, act: () => void): Disposable {
  if (signal?.aborted === true) act()
  else signal?.addEventListener('abort', act, { once: true })
  return { [Symbol.dispose]: () => signal?.removeEventListener('abort', act) }
}

/**
 * Applies all that a run changed, flagged files too: the task asks for some of them, nothing executes them here, and the
 * folder is removed. Flagged parts of a repository of git stay out, since no check reads them.
 */
export async function applyResult(host: Host, runId: string): Promise<void> {
  const changes = await host.changes(runId)
  const items = await changes.review()
  const paths = items
    .filter((item) => item.flagged === undefined || !item.path.split('/').includes('.git'))
    .map((item) => item.path)
  await changes.apply({ paths, exact: true }, { by: actor })
}

function testInVm(host: Host, signal: AbortSignal | undefined): RunTest {
  return async (workspace, { files, command }) => {
    const signals = signal === undefined ? {} : { signal }
    await using sandbox = await host.sandbox({ workspace, vm: { memoryBytes }, ...signals })
    try {
      for (const [name, text] of Object.entries(files))
        await sandbox.writeFile(path.posix.join(hiddenFolder, name), text)
      return await sandbox.exec(command, { timeoutMs: testTimeoutMs, ...signals })
    } catch (error) {
      // What the agent left there may have the place of the test, or end its VM.
      if (!(error instanceof CaissonError) || error.code === 'cancelled') throw error
      return { exitCode: 1, stdout: '', stderr: error.message }
    }
  }
}
