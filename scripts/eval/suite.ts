/** All tasks of the evaluation, and the choice among them. */
import type { EvalTask } from './task.ts'
import { basicTasks } from './tasks/basic.ts'
import { dataTasks } from './tasks/data.ts'
import { gitTasks } from './tasks/git.ts'
import { nodeTasks } from './tasks/node.ts'
import { programTasks } from './tasks/programs.ts'
import { pythonTasks } from './tasks/python.ts'
import { textTasks } from './tasks/text.ts'

export const suite: readonly EvalTask[] = [
  ...basicTasks,
  ...pythonTasks,
  ...nodeTasks,
  ...programTasks,
  ...dataTasks,
  ...textTasks,
  ...gitTasks,
]

export interface TaskFilter {
  /** Names of tasks; empty: all. */
  readonly only: readonly string[]
  /** Tasks that have one of these tags; empty: all. */
  readonly tags: readonly string[]
}

/** The tasks that match, in the order of the suite. @throws {RangeError} for a name or tag that no task has, or no match */
export function chooseTasks({ only, tags }: TaskFilter): EvalTask[] {
  const names = new Set(suite.map(({ name }) => name))
  const known = new Set<string>(suite.flatMap((task) => task.tags))
  for (const name of only)
    if (!names.has(name)) throw new RangeError(`no task ${name}; --list shows the tasks`)
  for (const tag of tags)
    if (!known.has(tag)) throw new RangeError(`no task has the tag ${tag}; known: ${[...known].join(', ')}`)
  const chosen = suite.filter(
    (task) =>
      (only.length === 0 || only.includes(task.name)) &&
      (tags.length === 0 || task.tags.some((tag) => tags.includes(tag))),
  )
  if (chosen.length === 0) throw new RangeError('no task has both one of the names and one of the tags')
  return chosen
}
