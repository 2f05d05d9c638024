/** Reads the plan given to a run: a value, an earlier run's journal, or a file. Refuses anything that is not a plan. */

import { constants } from 'node:fs'
import { open } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError, hasCode } from '#specs/errors.ts'
import { reasonOf } from '#specs/node/file-error.ts'
import type { Plan } from '#specs/protocol/plan.ts'
import { findAgentProblems } from '#specs/protocol/plan-agents.ts'
import { findStepModelProblems } from '#specs/protocol/run-models.ts'
import { parseOutsidePlan, readPlanText } from '../approvals/plan-question.ts'
import { readBounded } from '../files/regular-file.ts'
import { RunFold } from '../journal/run-outline.ts'
import type { RunStore } from '../journal/run-store.ts'

export interface GivenPlan {
  readonly plan: Plan
  /** Id of a run, path of a file, or `the application`. */
  readonly from: string
  /** The task that the plan was made for; absent if unknown. */
  readonly prompt?: string
}

/** @throws {CaissonError} `invalid_plan` when the plan needs more sub-agents than the run allows */
export function requireAgents({ plan, from }: GivenPlan, maxAgents: number): void {
  const [problem] = findAgentProblems(plan, { maxAgents, begun: 0 }, {})
  if (problem !== undefined)
    throw new CaissonError(
      'invalid_plan',
      `the plan of ${from} cannot be carried out: ${problem}, or allow more (option limits.maxAgents)`,
    )
}

/** @throws {CaissonError} `invalid_plan` when a step names a model that the run does not allow */
export function requireModels({ plan, from }: GivenPlan, allowed: readonly string[]): void {
  const [problem] = findStepModelProblems(plan, allowed)
  if (problem !== undefined)
    throw new CaissonError(
      'invalid_plan',
      `the plan of ${from} cannot be carried out: ${problem}; option stepModels allows more`,
    )
}

/** Far above the size of any valid plan. */
const maxBytes = 4 * 1024 * 1024

/** @throws {CaissonError} `invalid_plan` with the positions of the errors */
export function givenPlanOf(value: unknown): GivenPlan {
  const read = parseOutsidePlan(value)
  if (read.ok) return { plan: read.value, from: 'the application' }
  throw new CaissonError('invalid_plan', `the plan cannot run: ${read.error}`)
}

/**
 * @param name a run (id, prefix of an id, `last`), or a JSON file with a plan; a run takes precedence over a file
 * @param directory for `last`
 * @throws {CaissonError} `invalid_plan` when nothing has this name, or it is not a plan
 */
export async function findGivenPlan(store: RunStore, name: string, directory?: string): Promise<GivenPlan> {
  const isFile = name.includes('/') || name.includes('.')
  if (!isFile) {
    const found = await store.find(name, directory).catch((error: unknown) => {
      if (hasCode(error, 'run_not_found')) return undefined
      throw error
    })
    if (found !== undefined) return await readPlanOfRun(store, found.runId)
  }
  return await readPlanFile(name, isFile)
}

async function readPlanOfRun(store: RunStore, runId: string): Promise<GivenPlan> {
  const fold = new RunFold()
  let prompt = ''
  await store.visit(runId, (line, end) => {
    if (line.event.type === 'run-start') prompt = line.event.prompt
    fold.next(line, end)
  })
  const { plan } = fold.state
  if (plan !== null) return { plan, from: runId, prompt }
  throw new CaissonError('invalid_plan', `${runId} ended before it had a plan; name another run or a file`)
}

async function readPlanFile(file: string, isSure: boolean): Promise<GivenPlan> {
  let text: string
  try {
    // Without O_NONBLOCK, opening a FIFO without a writer would block before it could be refused.
    await using handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK)
    if (!(await handle.stat()).isFile()) throw new CaissonError('invalid_plan', `${file} is not a file`)
    const bytes = await readBounded(handle, maxBytes)
    if (bytes === null) throw new CaissonError('invalid_plan', `${file} is longer than ${maxBytes} bytes`)
    text = bytes.toString('utf8')
  } catch (error) {
    if (hasCode(error, 'invalid_plan')) throw error
    const other = isSure ? '' : 'no run has this ID, and '
    throw new CaissonError(
      'invalid_plan',
      `no plan "${file}": ${other}the file cannot be read (${reasonOf(error)}); name a run (caisson runs list) or a file with a plan as JSON`,
      { cause: error },
    )
  }
  const read = readPlanText(text)
  if (read.ok) return { plan: read.value, from: path.resolve(file) }
  throw new CaissonError('invalid_plan', `the plan in ${file} cannot run: ${read.error}`)
}
