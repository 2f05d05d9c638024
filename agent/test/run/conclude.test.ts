// What a run ends with when a limit is reached: what the model says in one turn more, at each depth.
import { describe, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import type { Asked, Script } from '#specs/testing/model-server.ts'
import { answer, call, eventsOf, onePlan, runTask } from '../hostile/world.ts'
import { isOfSubAgent, isPlanning } from '../support/scripted-model.ts'

const isLast = (asked: Asked): boolean => asked.body.tool_choice === 'none'

describe('a run whose limit is reached', () => {
  it('ends with that limit and the words of one turn more, where it was reached [A.03]', async () => {
    for (const limits of [
      { maxToolCalls: 2 },
      { maxTurnsPerStep: 3 },
      { maxTokens: 75 },
      { maxRequests: 4 },
    ]) {
      const script: Script = (asked, index) => {
        if (isPlanning(asked)) return onePlan
        return isLast(asked) ? answer('a half is done') : call('list_files', { path: `d${index}` })
      }
      const ending = await runTask(script, { task: { limits } })
      expect(ending.completion).toMatchObject({ outcome: 'failed', summary: 'a half is done' })
      expect(ending.completion.reason).toMatch(/^limit_/)
      expect(ending.asked.filter(isLast)).toHaveLength(1)
      expect(eventsOf(ending, 'step-end')).toHaveLength(1)
    }
  })

  it('of time, too: the turn under way is given up [A.03]', async () => {
    const script: Script = (asked) => {
      if (isPlanning(asked)) return onePlan
      return isLast(asked) ? answer('nothing is done') : { body: '', before: 'hang' }
    }
    const ending = await runTask(script, { task: { limits: { maxWallMs: 1_000 } } })
    expect(ending.completion).toMatchObject({ reason: 'limit_time', summary: 'nothing is done' })
  })

  it('leaves its sub-agents no turn; one that reached its own limit had one, and its parent reads it [A.03 A.07]', async () => {
    const spawn = (...briefs: string[]) =>
      reply({
        calls: briefs.map((brief) => ({
          name: 'spawn_agent',
          arguments: { brief, limits: brief === 'short' ? { maxTurns: 1 } : { maxWallMs: 60_000 } },
        })),
      })
    let told = ''
    const script: Script = (asked, index) => {
      if (isPlanning(asked)) return onePlan
      if (!isOfSubAgent(asked)) {
        told += asked.messages.at(-1)?.content ?? ''
        return isLast(asked) ? answer('the run is cut') : spawn(index === 1 ? 'short' : 'long')
      }
      if (isLast(asked)) return answer('the short one read a folder')
      const isShort = asked.messages.some(
        ({ content }) => content?.includes('<instructions>\nshort') === true,
      )
      return isShort ? call('list_files', {}) : { body: '', before: 'hang' }
    }
    const ending = await runTask(script, { agents: true, task: { limits: { maxWallMs: 3_000 } } })
    expect(ending.completion).toMatchObject({ reason: 'limit_time', summary: 'the run is cut' })
    expect(told).toContain('[sub-agent work-agent: failed (limit_turns)]\nthe short one read a folder')
    const ends = eventsOf(ending, 'agent-end').map(({ state, reason }) => [state, reason])
    expect(ends).toEqual([
      ['failed', 'limit_turns'],
      ['cancelled', 'cancelled'],
    ])
    expect(eventsOf(ending, 'agent-end').map(({ text }) => text)[0]).toContain('the short one read a folder')
  })
})
