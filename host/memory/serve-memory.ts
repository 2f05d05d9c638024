/** The paths of memory and of notes under the name `gateway`. */
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
import type { GatewayServices } from '../gateway/gateway.ts'
import { answerWith, limitOpen } from '../gateway/json-service.ts'
import type { MemoryDesk } from './desk.ts'

/** As many as an agent's calls of one turn. */
const openMaxRequests = 8

/** `/memory/remember`, `/memory/recall`, `/notes/add` and `/notes/list`, by exact path. */
export function serveMemory(desk: MemoryDesk): GatewayServices['paths'] {
  const paths: GatewayServices['paths'] = {
    '/memory/remember': {
      method: 'POST',
      serve: answerWith(RememberRequest, RememberAnswer, async (request) => desk.remember(request)),
    },
    '/memory/recall': {
      method: 'POST',
      serve: answerWith(RecallRequest, RecallAnswer, async (request) => desk.recall(request)),
    },
    '/notes/add': {
      method: 'POST',
      serve: answerWith(NoteAddRequest, NoteAddAnswer, async (request) => desk.addNote(request)),
    },
    '/notes/list': {
      method: 'POST',
      serve: answerWith(NoteListRequest, NoteListAnswer, async (request) => desk.listNotes(request)),
    },
  }
  return limitOpen(paths, openMaxRequests, 'memory')
}
