/** The plan that a run is handed: as a value, from an earlier run's journal, or from a file. Refuses what is no plan. */

import { constants } from 'node:fs'
import { open } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError, hasCode } from '#specs/errors.ts'
import { reasonOf } from '#specs/node/file-error.ts'
import type { Plan } from '#specs/protocol/plan.ts'
import { findAgentProblems } from '#specs/protocol/plan-agents.ts'
import { readPlan, readPlanText } from '../approvals/plan-question.ts'
import { RunFold } from '../journal/run-outline.ts'
import type { RunStore } from '../journal/run-store.ts'

export interface GivenPlan {
  readonly plan: Plan
  /** The id of a run, a file, or `the application`. */
  readonly from: string
  /** The task that the plan was made for, where it is known. */
  readonly prompt?: string
}

/** @throws {CaissonError} `invalid_plan` when the plan needs more sub-agents than the run may have */
export function requireAgents({ plan, from }: GivenPlan, maxAgents: number): void {
  const [problem] = findAgentProblems(plan, { maxAgents, begun: 0 }, {})
  if (problem !== undefined)
    throw new CaissonError(
      'invalid_plan',
      `the plan of ${from} cannot be carried out: ${problem}, or allow more (limits.maxAgents, --max-agents)`,
    )
}

/** Far more than a plan may be. */
const maxBytes = 4 * 1024 * 1024

/** @throws {CaissonError} `invalid_plan` with the places that are wrong */
export function givenPlanOf(value: unknown): GivenPlan {
  const read = readPlan(value)
  if (read.ok) return { plan: read.value, from: 'the application' }
  throw new CaissonError('invalid_plan', `the plan cannot be carried out: ${read.error}`)
}

/**
 * @param name a run (its id, a beginning of it, `last`), or a file with a plan as JSON; a run wins where it could be both
 * @throws {CaissonError} `invalid_plan` when there is none of that name, or it is none
 */
export async function findGivenPlan(store: RunStore, name: string): Promise<GivenPlan> {
  const isFile = name.includes('/') || name.includes('.')
  if (!isFile) {
    const found = await store.find(name).catch((error: unknown) => {
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
  await store.visit(runId, (line) => {
    if (line.event.type === 'run-start') prompt = line.event.prompt
    fold.next(line)
  })
  const { plan } = fold.state
  if (plan !== null) return { plan, from: runId, prompt }
  throw new CaissonError('invalid_plan', `${runId} ended before it had a plan; name another run, or a file`)
}

async function readPlanFile(file: string, isSure: boolean): Promise<GivenPlan> {
  let text: string
  try {
    // A FIFO that nobody writes to would be waited for before it could be refused.
    await using handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK)
    if (!(await handle.stat()).isFile()) throw new CaissonError('invalid_plan', `${file} is not a file`)
    const bytes = Buffer.alloc(maxBytes + 1)
    let length = 0
    for (let read = -1; read !== 0 && length < bytes.length; length += read)
      read = (await handle.read(bytes, length)).bytesRead
    if (length > maxBytes) throw new CaissonError('invalid_plan', `${file} is longer than ${maxBytes} bytes`)
    text = bytes.toString('utf8', 0, length)
  } catch (error) {
    if (hasCode(error, 'invalid_plan')) throw error
    const other = isSure ? '' : 'no run is called so, and '
    throw new CaissonError(
      'invalid_plan',
      `no plan "${file}": ${other}the file cannot be read (${reasonOf(error)}); name a run (caisson runs list) or a file with a plan as JSON`,
      { cause: error },
    )
  }
  const read = readPlanText(text)
  if (read.ok) return { plan: read.value, from: path.resolve(file) }
  throw new CaissonError('invalid_plan', `the plan in ${file} cannot be carried out: ${read.error}`)
}
