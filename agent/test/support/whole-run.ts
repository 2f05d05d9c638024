/**
 * One run from its task to its completion: real planner, executor, tools and client, and a host
 * that writes down.
 */
import type { AgentEvent } from '#specs/protocol/event.ts'
import { Completion } from '#specs/protocol/task.ts'
import { type Asked, type Script, startModelServer } from '#specs/testing/model-server.ts'
import type { RunLink } from '../../run/run.ts'
import { TaskServer, type TaskServerParts } from '../../tasks.ts'
import { createRegistry } from '../../tool-calls/registry.ts'
import { makeTask, modelAt, noteTools, plainHost, silentLogger } from './run.ts'

export interface WholeRun {
  readonly asked: readonly Asked[]
  readonly events: readonly AgentEvent[]
  readonly completion: Completion
}

export interface WholeRunOptions {
  readonly task?: Parameters<typeof makeTask>[0]
  readonly parts?: Partial<TaskServerParts>
  readonly host?: Partial<RunLink>
  /** Called when the task has been submitted. */
  during?(tasks: TaskServer, runId: string): void
}

/** Carries a task out; `script` also gets the server of tasks, to do what a person does at that moment. */
export async function runWhole(
  script: (tasks: TaskServer, ...asked: Parameters<Script>) => ReturnType<Script>,
  { task: fields, parts, host, during }: WholeRunOptions = {},
): Promise<WholeRun> {
  await using server = await startModelServer((asked, index) => script(tasks, asked, index))
  const completed = Promise.withResolvers<Completion>()
  const events: AgentEvent[] = []
  const tasks = new TaskServer({
    host: {
      emitEvent: (_runId, _path, event) => Promise.resolve(void events.push(event)),
      emitDelta: () => undefined,
      requestApproval: () => Promise.resolve({ ok: true, value: { decision: 'allow' } }),
      ...plainHost,
      ...host,
      complete: async (completion) => ({
        ok: true,
        value: completed.resolve(Completion.parse(completion)),
      }),
    },
    registry: createRegistry(noteTools(), { logger: silentLogger }),
    modelFor: ({ model }) => modelAt(server.baseUrl, model),
    listWorkspace: () => Promise.resolve('a.csv (12 bytes)'),
    logger: silentLogger,
    ...parts,
  })
  const task = makeTask(fields)
  tasks.submit(task)
  during?.(tasks, task.runId)
  const completion = await completed.promise
  await tasks.close()
  return { asked: server.asked, events, completion }
}
