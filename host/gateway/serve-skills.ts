/** Gateway path that gives the guest one of the user's skills. */
import { SkillLoadAnswer, SkillLoadRequest } from '#specs/protocol/extension.ts'
import { gatewayError } from '../net/gateway-error.ts'
import type { UserSkills } from '../skills/user-skills.ts'
import type { GatewayServices } from './gateway.ts'
import { answerWith, limitOpen } from './json-service.ts'

/** A skill with all its files has several megabytes. */
const openMaxRequests = 2

/** `/skills/load`, by exact path. */
export function serveSkills(skills: UserSkills): GatewayServices['paths'] {
  const load = answerWith(SkillLoadRequest, SkillLoadAnswer, async ({ skillId }) => {
    const skill = await skills.load(skillId)
    if (skill !== null) return { ok: true, value: skill }
    return { ok: false, error: gatewayError('not_found', 'The user has no skill of this id.') }
  })
  return limitOpen({ '/skills/load': { method: 'POST', serve: load } }, openMaxRequests, 'skills')
}
