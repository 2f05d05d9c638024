/** Gateway paths of memory and notes. */

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
} from '#specs/protocol/extension.ts'
import type { MemoryService } from '../memory/memory-service.ts'
import { gatewayError, type WireError } from '../net/gateway-error.ts'
import type { GatewayServices } from './gateway.ts'
import { answerWith, limitOpen } from './json-service.ts'

/** Matches an agent's parallel calls in one turn. */
const openMaxRequests = 8

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
    take: () => Result<T, WireError>,
  ): Promise<Result<T, WireError>> => {
    if (await isAtWork(agentPath)) return take()
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
      serve: answerWith(RecallRequest, RecallAnswer, async (request) => memory.recall(request)),
    },
    '/notes/add': {
      method: 'POST',
      serve: answerWith(NoteAddRequest, NoteAddAnswer, (request) =>
        forAgent(request.agentPath, () => memory.addNote(request)),
      ),
    },
    '/notes/list': {
      method: 'POST',
      serve: answerWith(NoteListRequest, NoteListAnswer, async (request) => memory.listNotes(request)),
    },
  }
  return limitOpen(paths, openMaxRequests, 'memory')
}
