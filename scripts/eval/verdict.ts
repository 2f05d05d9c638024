/** Whether a result is right: first its files, then its hidden test, which whoever calls runs in a sandbox. */
import type { EvalTask, HiddenTest } from './task.ts'
import { resultReader } from './workspace.ts'

export interface TestOutput {
  /** Null: the time limit ended it. */
  readonly exitCode: number | null
  readonly stdout: string
  readonly stderr: string
}

/** Runs a hidden test over a result. */
export type RunTest = (folder: string, test: HiddenTest) => Promise<TestOutput>

export interface Verdict {
  readonly passed: boolean
  /** Why not; none where it passed. Has text of the agent: sanitize it before a terminal shows it. */
  readonly problems: readonly string[]
}

const outputMaxChars = 1_000

/** @param folder the workspace of the task with the changes of the run */
export async function checkResult(task: EvalTask, folder: string, runTest: RunTest): Promise<Verdict> {
  const { findProblems, test } = task.check
  const problems = findProblems?.(resultReader(folder)) ?? []
  if (problems.length > 0 || test === undefined) return { passed: problems.length === 0, problems }
  const { exitCode, stdout, stderr } = await runTest(folder, test)
  // A program of the agent may end the process early, with code 0.
  if (exitCode === 0 && stdout.trimEnd().split('\n').at(-1) === 'checked')
    return { passed: true, problems: [] }
  const how = exitCode === null ? 'ran out of time' : `ended with code ${exitCode}`
  return { passed: false, problems: [`the hidden test ${how}: ${(stderr || stdout).slice(-outputMaxChars)}`] }
}
