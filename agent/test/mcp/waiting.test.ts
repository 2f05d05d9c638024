// A person who thinks about a server is not on the run's time.
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { Completion } from '#specs/protocol/task.ts'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { TaskServer } from '../../tasks.ts'
import { createRegistry } from '../../tool-calls/registry.ts'
import { makeTask, modelAt, noteTools, plainHost, silentLogger } from '../support/run.ts'
import { isPlanning, planReply } from '../support/scripted-model.ts'

it('a question about a server stops the clock of the run until it is answered [A.09] [S1.11]', async () => {
  await using model = await startModelServer((asked) =>
    isPlanning(asked)
      ? planReply({ goal: 'g', steps: [{ id: 'a', title: 'A', instructions: 'a' }] })
      : reply({ text: 'done' }),
  )
  const completed = Promise.withResolvers<Completion>()
  const tasks = new TaskServer({
    host: {
      emitEvent: () => Promise.resolve(),
      emitDelta: () => undefined,
      requestApproval: async () => {
        await sleep(6_500)
        return { ok: true, value: { decision: 'deny' } }
      },
      ...plainHost,
      complete: async (completion) => ({
        ok: true,
        value: completed.resolve(Completion.parse(completion)),
      }),
    },
    registry: createRegistry(noteTools(), { logger: silentLogger }),
    extensions: [
      async ({ host, signal }) => {
        const ids = { approvalId: 'mcp-1', callId: 'mcp-1', stepId: 'mcp', agentPath: 'root' }
        const question = { ...ids, tool: 'use_mcp_server', arguments: '{}', preview: '' }
        await host.requestApproval(question, signal)
        return null
      },
    ],
    modelFor: () => modelAt(model.baseUrl),
    listWorkspace: () => Promise.resolve(''),
    logger: silentLogger,
  })
  tasks.submit(makeTask({ limits: { maxWallMs: 6_000 } }))
  expect(await completed.promise).toMatchObject({ outcome: 'completed' })
  await tasks.close()
}, 30_000)
