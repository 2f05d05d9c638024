// What a run knows, its sub-agents know: notes and skills, under their own names.
import { describe, expect, it } from 'vitest'
import type { SkillLoadAnswer } from '#specs/protocol/extension.ts'
import type { Asked } from '#specs/testing/model-server.ts'
import { openSkills } from '../../skills/skill-catalog.ts'
import type { GatewayClient } from '../../tool-calls/gateway-client.ts'
import { createLoadSkillTool } from '../../tools/load-skill.ts'
import { createMemoryTools } from '../../tools/memory.ts'
import { answer, call, eventsOf, onePlan, runTask } from '../hostile/world.ts'
import { isOfSubAgent, isPlanning } from '../support/scripted-model.ts'

const note = { noteId: 'mem-0123456789ab', text: 'Use tabs', tags: [], state: 'kept' as const }
const skill: SkillLoadAnswer = {
  skillId: 'tidy',
  description: 'Tidies',
  instructions: 'Sort the imports.',
  files: [],
  leftOut: [],
}

describe('a sub-agent', () => {
  it('learns of notes and skills, loads one, and proposes a note under its own path [S0.13, S2.14, A.09]', async () => {
    const posted: [string, object][] = []
    const gateway: GatewayClient = {
      post: async (path, body, schema) => {
        posted.push([path, body])
        const value = path === '/skills/load' ? skill : { note: { ...note, state: 'proposed' } }
        return { ok: true, value: schema.parse(value) }
      },
    }
    const ran = {
      exitCode: 0,
      signal: null,
      timedOut: false,
      oomKilled: false,
      pidsRefused: 0,
      durationMs: 1,
    }
    const helper = { execInSandbox: async () => ({ ok: true, value: ran }) as const }
    const script = (asked: Asked) => {
      if (isPlanning(asked)) return onePlan
      const turns = asked.messages.filter(({ role }) => role === 'assistant').length
      if (!isOfSubAgent(asked))
        return turns === 0 ? call('spawn_agent', { brief: 'tidy up', name: 'tidier' }) : answer('done')
      if (turns === 0) return call('load_skill', { skillId: 'tidy' })
      return turns === 1 ? call('remember', { text: 'Imports are sorted' }) : answer('tidied')
    }
    const ending = await runTask(script, {
      agents: true,
      task: { memory: [note], skills: [{ skillId: 'tidy', description: 'Tidies' }] },
      tools: [...createMemoryTools(gateway), createLoadSkillTool({ gateway, helper, files: {} })],
      openSkills: ({ skills }) => openSkills(skills, { root: '/nonexistent' }),
    })
    expect(ending.completion.outcome).toBe('completed')
    const ends = ending.events.flatMap((event, index) =>
      event.type === 'tool-end' && ending.agentPaths[index] === 'root/tidier' ? [event] : [],
    )
    expect(ends.map(({ tool, error }) => [tool, error])).toEqual([
      ['load_skill', undefined],
      ['remember', undefined],
    ])
    expect(ends[0]?.output).toContain('Sort the imports.')
    expect(posted).toContainEqual([
      '/memory/remember',
      expect.objectContaining({ text: 'Imports are sorted', agentPath: 'root/tidier' }),
    ])
    const [brief] = ending.asked.filter(isOfSubAgent).slice(1)
    expect(String(brief?.messages[1]?.content)).toContain('Use tabs')
    expect(eventsOf(ending, 'agent-end')).toMatchObject([{ state: 'completed', text: 'tidied' }])
  })
})
