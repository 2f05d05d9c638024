/** Gateway paths of the web tools, the user's skills, memory and notes: JSON by a strict schema in and out. */

import { WebFetchAnswer, WebFetchRequest, WebSearchAnswer, WebSearchRequest } from '#specs/protocol/egress.ts'
import type { Result } from '#specs/protocol/error.ts'
import {
  NoteAddAnswer,
  NoteAddRequest,
  NoteListAnswer,
  NoteListRequest,
  RecallAnswer,
  RecallRequest,
  RememberAnswer,
  RememberRequest,
  SkillLoadAnswer,
  SkillLoadRequest,
} from '#specs/protocol/extension.ts'
import type { MemoryService } from '../memory/memory-service.ts'
import { gatewayError, type WireError } from '../net/gateway-error.ts'
import type { UserSkills } from '../skills/user-skills.ts'
import type { Web } from '../web/web.ts'
import type { GatewayServices } from './gateway.ts'
import { answerWith, limitOpen } from './services.ts'

/** Maximum open requests of one service; matches an agent's parallel calls in one turn. */
const parallelMaxRequests = 8

/**
 * `/memory/remember`, `/memory/recall`, `/notes/add` and `/notes/list`, by exact path.
 * @param isAtWork whether an agent is active; requests of others are refused
 */
export function serveMemory(
  memory: MemoryService,
  isAtWork: (agentPath: string) => Promise<boolean>,
): GatewayServices['paths'] {
  const forAgent = async <T>(
    agentPath: string,
    take: () => Promise<Result<T, WireError>>,
  ): Promise<Result<T, WireError>> => {
    if (await isAtWork(agentPath)) return await take()
    const text = `No agent ${agentPath} is at work, so nothing is noted for it.`
    return { ok: false, error: gatewayError('invalid_request', text) }
  }
  const paths: GatewayServices['paths'] = {
    '/memory/remember': {
      method: 'POST',
      serve: answerWith(RememberRequest, RememberAnswer, (request) =>
        forAgent(request.agentPath, () => memory.remember(request)),
      ),
    },
    '/memory/recall': {
      method: 'POST',
      serve: answerWith(RecallRequest, RecallAnswer, (request) => memory.recall(request)),
    },
    '/notes/add': {
      method: 'POST',
      serve: answerWith(NoteAddRequest, NoteAddAnswer, (request) =>
        forAgent(request.agentPath, () => memory.addNote(request)),
      ),
    },
    '/notes/list': {
      method: 'POST',
      serve: answerWith(NoteListRequest, NoteListAnswer, (request) => memory.listNotes(request)),
    },
  }
  return limitOpen(paths, parallelMaxRequests, 'memory')
}

/**
 * `/web/fetch` and `/web/search`, by exact path.
 * @param withSearch false: a search is refused, as its words would reach the search provider
 */
export function serveWeb(web: Web, { withSearch = true } = {}): GatewayServices['paths'] {
  const noSearch = gatewayError(
    'egress_denied',
    'refused: this sub-agent may reach only the hosts that it was given.',
  )
  const paths: GatewayServices['paths'] = {
    '/web/fetch': {
      method: 'POST',
      serve: answerWith(WebFetchRequest, WebFetchAnswer, (request, signal) => web.fetch(request, signal)),
    },
    '/web/search': {
      method: 'POST',
      serve: answerWith(WebSearchRequest, WebSearchAnswer, async (request, signal) =>
        withSearch ? await web.search(request, signal) : { ok: false, error: noSearch },
      ),
    },
  }
  return limitOpen(paths, parallelMaxRequests, 'the web')
}

/** A skill with all its files has several megabytes. */
const skillsMaxRequests = 2

/** `/skills/load`, by exact path. */
export function serveSkills(skills: UserSkills): GatewayServices['paths'] {
  const load = answerWith(SkillLoadRequest, SkillLoadAnswer, async ({ skillId }) => {
    const skill = await skills.load(skillId)
    if (skill !== null) return { ok: true, value: skill }
    return { ok: false, error: gatewayError('not_found', 'The user has no skill of this id.') }
  })
  return limitOpen({ '/skills/load': { method: 'POST', serve: load } }, skillsMaxRequests, 'skills')
}
