// Whether a run is offered memory and skills at all, in whole runs as a server sees them.
import { mkdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { openSkills } from '../../skills/skill-catalog.ts'
import { createRegistry } from '../../tool-calls/registry.ts'
import { toolFailure } from '../../tool-calls/tool.ts'
import { createGovernanceTool } from '../../tools/governance.ts'
import { createLoadSkillTool } from '../../tools/load-skill.ts'
import { createMemoryTools } from '../../tools/memory.ts'
import { noteTools, silentLogger } from '../support/run.ts'
import { isPlanning, planReply } from '../support/scripted-model.ts'
import { runWhole, type WholeRunOptions } from '../support/whole-run.ts'

const gateway = { post: async () => toolFailure('unavailable', 'no host') }
const helper = { execInSandbox: () => Promise.reject(new Error('not called')) }
const ours = ['governance_note', 'load_skill', 'recall', 'remember']

async function offered(task: WholeRunOptions['task'], root: string) {
  const tools = [
    ...noteTools(),
    ...createMemoryTools(gateway),
    createGovernanceTool(gateway),
    createLoadSkillTool({ gateway, helper, files: { root } }),
  ]
  const { asked, events } = await runWhole(
    (_tasks, one) =>
      isPlanning(one)
        ? planReply({ goal: 'g', steps: [{ id: 'a', title: 'A', instructions: 'a' }] })
        : reply({ text: 'done' }),
    {
      ...(task === undefined ? {} : { task }),
      parts: {
        registry: createRegistry(tools, { logger: silentLogger }),
        openSkills: ({ skills }) => openSkills(skills, { root }),
      },
    },
  )
  const names = (asked.at(-1)?.tools ?? []).map((tool) => tool.function.name)
  const notes = events.flatMap((event) => (event.type === 'note' ? [event.text] : []))
  return { names: names.filter((name) => ours.includes(name)), asked, notes }
}

describe('memory and skills', () => {
  it('are not offered where the run has none [A.09]', async () => {
    const { names, asked } = await offered(undefined, await temporaryFolder('empty'))
    expect(names).toEqual([])
    expect(JSON.stringify(asked.map(({ messages }) => messages.at(1)))).not.toMatch(/# Skills|# Memory/)
  })

  it('are offered and told where there are some, to the planner too [S0.13 A.09]', async () => {
    const root = await temporaryFolder('skills')
    mkdirSync(path.join(root, '.agents/skills/lint'), { recursive: true })
    writeFileSync(
      path.join(root, '.agents/skills/lint/SKILL.md'),
      '---\nname: lint\ndescription: [\n---\nLint.',
    )
    const memory = [{ noteId: 'mem-0123456789ab', text: 'Use tabs', tags: [], state: 'kept' as const }]
    const { names, asked, notes } = await offered(
      { memory, skills: [{ skillId: 'tidy', description: 'Tidies' }] },
      root,
    )
    expect(names).toEqual(ours)
    for (const { messages } of asked) {
      const told = String(messages[1]?.content)
      expect(told).toContain(
        '<skills from="user">\n- tidy: Tidies\n</skills>\n<skills from="workspace">\n- lint',
      )
      expect(told).toContain('<note id="mem-0123456789ab">\nUse tabs\n</note>')
    }
    expect(notes).toEqual([expect.stringContaining('skills of the workspace: .agents/skills/lint/SKILL.md')])
  })

  it('are offered without a note yet, where the run may remember [S0.13]', async () => {
    const { names } = await offered({ memory: [] }, await temporaryFolder('empty'))
    expect(names).toEqual(['governance_note', 'recall', 'remember'])
  })
})
