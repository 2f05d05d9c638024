/** One attempt at a task: a run on a copy of its workspace, its changes, then the check; a hidden test has a VM of its own. */
import { mkdir, rm } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError, type Host, type RunOptions } from '../../host/index.ts'
import type { Attempt } from './attempts.ts'
import { type EvalTask, hiddenFolder } from './task.ts'
import { checkResult, type RunTest } from './verdict.ts'
import { writeWorkspace } from './workspace.ts'

const testTimeoutMs = 300_000
const memoryBytes = 512 * 1024 ** 2

export interface AttemptOptions {
  readonly attempt: number
  /** Where the workspace of the attempt is made; what an earlier process left there is removed. */
  readonly folder: string
  readonly run: Pick<RunOptions, 'model' | 'effort' | 'signal'>
}

/** @throws {CaissonError} when the run cannot start or is lost: that says nothing of the model, and is not an attempt */
export async function attemptTask(host: Host, task: EvalTask, options: AttemptOptions): Promise<Attempt> {
  const { attempt, folder } = options
  await rm(folder, { recursive: true, force: true })
  await mkdir(folder, { recursive: true })
  await writeWorkspace(task, folder)
  const startedAt = performance.now()
  const run = await host.run({
    ...options.run,
    prompt: task.prompt,
    workspace: folder,
    vm: { memoryBytes },
    approvals: { interactive: false },
    metadata: { evaluation: `${task.name}-${attempt}` },
  })
  const result = await run.result()
  const durationMs = Math.round(performance.now() - startedAt)
  if (result.changes !== null) await (await host.changes(run.id)).apply('all')
  const { passed, problems } = await checkResult(task, folder, testInVm(host, options.run.signal))
  const { requests, inputTokens, outputTokens } = result.usage
  return {
    ...{ task: task.name, attempt, runId: run.id, passed, problems: [...problems] },
    end: result.outcome === 'completed' ? 'completed' : `${result.outcome}: ${result.reason}`,
    ...{ turns: requests, inputTokens, outputTokens, costUsd: result.costUsd, durationMs },
  }
}

function testInVm(host: Host, signal: AbortSignal | undefined): RunTest {
  return async (workspace, { files, command }) => {
    const signals = signal === undefined ? {} : { signal }
    await using sandbox = await host.sandbox({ workspace, vm: { memoryBytes }, ...signals })
    for (const [name, text] of Object.entries(files))
      await sandbox.writeFile(path.posix.join(hiddenFolder, name), text)
    try {
      return await sandbox.exec(command, { timeoutMs: testTimeoutMs, ...signals })
    } catch (error) {
      // What the agent left there may have the place of the test, or end its VM.
      if (!(error instanceof CaissonError) || error.code === 'cancelled') throw error
      return { exitCode: 1, stdout: '', stderr: error.message }
    }
  }
}
