/** Calls of a workflow whose arguments do not have the names of the function's parameters. */
import type { GraphProblem } from '#specs/node/workflow/graph.ts'
import type { WorkspaceData } from '#specs/node/workflow/workspace-data.ts'

/** Says nothing of a function that the file does not describe, or describes without parameters and code. */
export function findCallProblems({ steps, functions }: WorkspaceData): GraphProblem[] {
  return steps.flatMap(({ id, details: { call } }): GraphProblem[] => {
    const called = functions.find(({ name }) => name === call?.function)
    if (call === undefined || called === undefined) return []
    const { name, parameters, code } = called
    if (code === undefined && parameters.length === 0) return []
    const path = ['call', 'arguments']
    const known = parameters.map((one) => one.name)
    const expected =
      known.length === 0 ? 'which takes none' : `whose parameters are ${known.map(quote).join(', ')}`
    const unknown = Object.keys(call.arguments).filter((one) => !known.includes(one))
    const missing = parameters.filter(
      (one) => one.required !== false && !Object.hasOwn(call.arguments, one.name),
    )
    return [
      ...unknown.map((one) => ({
        step: id,
        path: [...path, one],
        message: `is no argument of the function "${name}", ${expected}`,
      })),
      ...missing.map((one) => ({
        step: id,
        path,
        message: `lacks ${quote(one.name)}, which the function "${name}" requires`,
      })),
    ]
  })
}

function quote(text: string): string {
  return JSON.stringify(text)
}
