/** Puts steps and functions of other workflows in the place of what names them. Refuses what does not fit there. */

import { namesOf } from '#specs/node/workflow/compile-step.ts'
import { findGraphProblems } from '#specs/node/workflow/graph.ts'
import type { WorkflowFunction, WorkflowStep, WorkspaceData } from '#specs/node/workflow/workspace-data.ts'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import { parseReference } from '#specs/protocol/workflow-keys.ts'
import { findCallProblems } from './call-problems.ts'
import { WorkflowError } from './workflow-file.ts'

type Refuse = (what: string) => WorkflowError

/** @param find another workflow by `AGENT@VERSION`, with what it takes itself @throws {WorkflowError} */
export function takeParts(
  data: WorkspaceData,
  find: (name: string) => WorkspaceData | undefined,
): WorkspaceData {
  const { taken = [], ...rest } = data
  if (taken.length === 0 && data.steps.every(({ details }) => details.from === undefined)) return data
  const functions = new Functions(data)
  for (const one of taken) {
    const [reference, refuse] = [referenceOf(one.from), refusalFor(data, `function "${one.name}"`)]
    const found = find(reference.file)?.functions.find(({ name }) => name === reference.item)
    if (found === undefined) throw refuse(`"${reference.file}" has no function "${reference.item}"`)
    functions.add(found, refuse)
  }
  const steps = data.steps.map((step) => {
    if (step.details.from === undefined) return step
    const [reference, refuse] = [referenceOf(step.details.from), refusalFor(data, `step "${step.id}"`)]
    const other = find(reference.file)
    const found = other?.steps.find(({ id }) => id === reference.item)
    if (other === undefined || found === undefined)
      throw refuse(`"${reference.file}" has no step "${reference.item}"`)
    const needed = namesOf([found])
    for (const one of other.functions) if (needed.has(one.name)) functions.add(one, refuse)
    return takeStep(step, found)
  })
  const whole = { ...rest, steps, functions: functions.all }
  requireWhole(whole)
  return whole
}

/** The functions of a workflow, each name once. */
class Functions {
  readonly #byName: Map<string, WorkflowFunction>

  constructor({ functions }: WorkspaceData) {
    this.#byName = new Map(functions.map((one) => [one.name, one]))
  }

  get all(): WorkflowFunction[] {
    return [...this.#byName.values()]
  }

  add(one: WorkflowFunction, refuse: Refuse): void {
    const known = this.#byName.get(one.name)
    if (known !== undefined && toCanonicalJson(known) !== toCanonicalJson(one))
      throw refuse(`the function "${one.name}" that comes with it differs from the one here`)
    this.#byName.set(one.name, one)
  }
}

/** The step of another workflow, as a step of this one: what is said here goes before, and where it leads is said here. */
function takeStep(step: WorkflowStep, { work, details }: WorkflowStep): WorkflowStep {
  const { id: _, nextStep: __, onFailure, ...taken } = details
  const { from: ___, sha256: ____, ...own } = step.details
  const kept = typeof onFailure === 'string' ? { onFailure } : {}
  return { ...step, work, details: { ...taken, ...kept, ...own } }
}

/** What was taken may read steps that are not here; calls of what was taken may have other arguments. */
function requireWhole(data: WorkspaceData): void {
  const [problem] = [...findGraphProblems(data), ...findCallProblems(data)]
  if (problem === undefined) return
  const where = problem.step === null ? 'the list of steps' : `step "${problem.step}"`
  throw refusalFor(data, [where, ...problem.path].join(' '))(problem.message)
}

/** @param from a step or function of a file that was read @returns the workflow, and what is taken of it */
export function referenceOf(from: string): { readonly file: string; readonly item: string } {
  const reference = parseReference(from)
  if (reference === null) throw new TypeError(`no reference: ${from}`)
  return { file: `${reference.agent}@${reference.version}`, item: reference.name }
}

export function refusalFor({ agent, version }: WorkspaceData, where: string): Refuse {
  return (what) => new WorkflowError(`the workflow ${agent}@${version} cannot run: ${where}: ${what}`, [])
}
