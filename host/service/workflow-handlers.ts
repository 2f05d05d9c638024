/** Reads a workflow for people who are about to start it, or says what is wrong with it. */
import type { WorkflowCheckRequest, WorkflowCheckResource } from '#specs/service/start-resources.ts'
import { WorkflowError, WorkspaceManager } from '../index.ts'

type WorkspaceData = ReturnType<WorkspaceManager['parse']>

export function checkWorkflow({ workflow }: WorkflowCheckRequest): WorkflowCheckResource {
  try {
    const text = typeof workflow === 'string' ? workflow : JSON.stringify(workflow)
    return { workflow: describe(new WorkspaceManager().parse(text)), problems: [] }
  } catch (error) {
    if (!(error instanceof WorkflowError) || error.problems.length === 0) throw error
    return { workflow: null, problems: error.problems.map((problem) => ({ ...problem })) }
  }
}

function describe({
  agent,
  version,
  description,
  input,
  steps,
}: WorkspaceData): WorkflowCheckResource['workflow'] {
  return {
    ...{ name: agent, version },
    ...(description === undefined ? {} : { description }),
    ...(input === undefined ? {} : { input }),
    steps: steps.map(({ id, name, work, next, details: { when, each, repeat } }) => ({
      ...{ id, name, work },
      next: next.map(({ to, on, when: condition, isCase }) => ({
        ...{ to, on, isCase },
        ...(condition === undefined ? {} : { when: condition }),
      })),
      ...(when === undefined ? {} : { when }),
      ...(each === undefined ? {} : { each: each.in }),
      ...(repeat === undefined ? {} : { repeat: repeat.until }),
    })),
  }
}
