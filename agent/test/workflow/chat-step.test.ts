import { expect, it } from 'vitest'
import type { AgentRequest, Agents } from '../../tool-calls/sub-agent-types.ts'
import { runOfStep } from '../../workflow/chat-step.ts'
import { noModel } from '../support/execute.ts'
import { makeRun } from '../support/run.ts'

it('a sub-agent of a step has no tool that the step does not have [S3.02]', async () => {
  const requests: AgentRequest[] = []
  const agents: Agents = {
    begun: 0,
    spawn: async (request) => {
      requests.push(request)
      throw new Error('none is started here')
    },
    findView: noModel,
    takeFile: noModel,
  }
  const { run } = makeRun({ model: noModel })
  const narrowed = runOfStep({ name: 'a', after: [], tools: ['read_*'] }, { ...run, agents })
  expect(narrowed.ok && narrowed.value.registry.names).toEqual(['read_note'])
  for (const tools of [undefined, ['read_note', 'write_note'], ['write_note'], []]) {
    const request = { brief: 'b', ...(tools === undefined ? {} : { tools }) }
    const signal = AbortSignal.timeout(1_000)
    await expect(narrowed.ok && narrowed.value.agents?.spawn(request, 'a', signal)).rejects.toThrow('none')
  }
  expect(requests.map(({ tools }) => tools)).toEqual([['read_note'], ['read_note'], [], []])
})
