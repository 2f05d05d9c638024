/** The tool `load_skill`: its description with the available skills, and the block that contains a loaded one. */

import type { Skill, SkillRegistry } from '#specs/node/skills/registry.ts'
import type { LLMToolDefinition } from '../contract/contract.ts'

export const loadSkillName = 'load_skill'

const listMaxChars = 16_000

/** Creates the tool for these skills; its description lists the sorted ids. */
export function describeLoadSkill(skills: readonly Skill[]): LLMToolDefinition {
  const lines: string[] = []
  let chars = 0
  for (const { skillId, description } of skills) {
    const line = description === '' ? `- ${skillId}` : `- ${skillId}: ${description}`
    chars += line.length
    if (chars > listMaxChars) {
      lines.push(`- (${skills.length - lines.length} more)`)
      break
    }
    lines.push(line)
  }
  return {
    name: loadSkillName,
    description: `Loads the instructions of a skill. Load a skill before work that its description fits.\nSkills:\n${lines.join('\n')}`,
    parameters: {
      type: 'object',
      properties: { skill_id: { type: 'string', description: 'The id of a skill, as listed' } },
      required: ['skill_id'],
    },
  }
}

/** The skill in the form for a model; an unknown id yields a block that says so. */
export async function loadSkillContext(
  registry: Pick<SkillRegistry, 'loadSkill' | 'listSkills'>,
  skillId: string,
): Promise<{ ok: boolean; content: string }> {
  const skill = await registry.loadSkill(skillId)
  const id = escapeAttribute(skillId.slice(0, 100))
  if (skill === null) {
    const known = (await registry.listSkills()).slice(0, 50).map((each) => each.skillId)
    const error = `there is no skill of this id; known are: ${known.join(', ') || '(none)'}`
    return { ok: false, content: `<skill_context id="${id}">\n<error>${error}</error>\n</skill_context>` }
  }
  const content = [
    `<skill_context id="${id}">`,
    `<description>${closeSafe(skill.description)}</description>`,
    `<skill_root>${closeSafe(skill.folder)}</skill_root>`,
    `<instructions>\n${closeSafe(skill.instructions)}\n</instructions>`,
    '</skill_context>',
  ].join('\n')
  return { ok: true, content }
}

/** No file can close its block. */
function closeSafe(text: string): string {
  const marks = /<(?=\/(?:skill_context|instructions|skill_root|description)\b|skill_context\b)/gi
  return text.toWellFormed().replaceAll(marks, '&lt;')
}

function escapeAttribute(text: string): string {
  return text.toWellFormed().replaceAll('&', '&amp;').replaceAll('"', '&quot;').replaceAll('<', '&lt;')
}
