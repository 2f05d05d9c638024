/** Renders a run's skills as a context section: the user's, then separately those of the workspace. */

import { block } from '../text/prompt-block.ts'
import type { KnownSkill } from '../tool-calls/skill-types.ts'

/** Renders the section in about `maxChars` characters; undefined when there are no skills. */
export function describeSkills(skills: readonly KnownSkill[], maxChars: number): string | undefined {
  if (skills.length === 0) return undefined
  const lines = skills.map(({ skillId, description }) =>
    description === '' ? `- ${skillId}` : `- ${skillId}: ${description}`,
  )
  let shown = 0
  for (let chars = 0; shown < lines.length; shown++) {
    chars += (lines[shown]?.length ?? 0) + 1
    if (chars > maxChars) break
  }
  const blocks = (['user', 'workspace'] as const).flatMap((source) => {
    const own = lines.filter((_, index) => index < shown && skills[index]?.source === source)
    return own.length === 0 ? [] : [block('skills', own.join('\n'), ` from="${source}"`)]
  })
  const rest = lines.length - shown
  if (rest > 0)
    blocks.push(`(${rest} more; load_skill lists the ids when it is asked for one that is not known.)`)
  return `# Skills\nLoad one with load_skill before work that its description fits.\n${blocks.join('\n')}`
}
