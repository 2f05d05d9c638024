/**
 * One run from its task to its completion: real inbox, loop, planner, executor, tools and client, and a host
 * that writes down.
 */
import type { AgentEvent } from '#specs/protocol/event.ts'
import { Completion } from '#specs/protocol/task.ts'
import { type Asked, type Script, startModelServer } from '#specs/testing/model-server.ts'
import { type LoopParts, runAgentLoop } from '../../loop.ts'
import { executePlan } from '../../plan/executor.ts'
import { makePlan } from '../../plan/planner.ts'
import type { RunLink } from '../../run/run.ts'
import { TaskInbox } from '../../run/task-inbox.ts'
import { createRegistry } from '../../tool-calls/registry.ts'
import { makeTask, modelAt, noteTools, plainHost, silentLogger } from './run.ts'

export interface WholeRun {
  readonly asked: readonly Asked[]
  readonly events: readonly AgentEvent[]
  readonly completion: Completion
}

export interface WholeRunOptions {
  readonly task?: Parameters<typeof makeTask>[0]
  readonly parts?: Partial<LoopParts>
  readonly host?: Partial<RunLink>
  /** Called when the task has been submitted. */
  during?(inbox: TaskInbox, runId: string): void
}

/** Carries a task out; `script` also gets the inbox, to do what a person does at that moment. */
export async function runWhole(
  script: (inbox: TaskInbox, ...asked: Parameters<Script>) => ReturnType<Script>,
  { task: fields, parts, host, during }: WholeRunOptions = {},
): Promise<WholeRun> {
  const inbox = new TaskInbox()
  await using server = await startModelServer((asked, index) => script(inbox, asked, index))
  const ending = new AbortController()
  const completed = Promise.withResolvers<Completion>()
  const events: AgentEvent[] = []
  const running = runAgentLoop(
    {
      inbox,
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
      planner: makePlan,
      executor: executePlan,
      registry: createRegistry(noteTools(), { logger: silentLogger }),
      modelFor: () => modelAt(server.baseUrl),
      listWorkspace: () => Promise.resolve('a.csv (12 bytes)'),
      logger: silentLogger,
      ...parts,
    },
    ending.signal,
  )
  const task = makeTask(fields)
  inbox.submit(task)
  during?.(inbox, task.runId)
  const completion = await completed.promise
  ending.abort()
  await running
  return { asked: server.asked, events, completion }
}
