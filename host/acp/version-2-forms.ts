/** What a session says and asks, in the forms of version 2 of the protocol. Pure. */
import { randomUUID } from 'node:crypto'
import {
  type ContentBlock,
  RequestError,
  type RequestPermissionRequest,
  type SessionConfigOption,
  type SessionUpdate,
  type ToolCallUpdate,
} from '@agentclientprotocol/sdk'
import type * as v2 from '@agentclientprotocol/sdk/experimental/v2'
import { CaissonError } from '../index.ts'
import type { Form, SessionState } from './editor.ts'
import { commands } from './session-parts.ts'
import { patchesOf } from './version-2-patches.ts'

/** A session has one plan at a time; a newer one takes its place. */
const planId = 'plan'

/** Undefined for what version 2 does not have. */
export function updateOf(update: SessionUpdate): v2.SessionUpdate | undefined {
  switch (update.sessionUpdate) {
    case 'user_message_chunk':
    case 'agent_message_chunk':
    case 'agent_thought_chunk':
      return { ...update, messageId: update.messageId ?? randomUUID() } as v2.SessionUpdate
    case 'tool_call':
    case 'tool_call_update':
      return { ...callOf(update), sessionUpdate: 'tool_call_update' }
    case 'plan':
      return {
        sessionUpdate: 'plan_update',
        plan: { type: 'items', planId, entries: update.entries } as v2.PlanUpdateContent,
      }
    case 'config_option_update':
      return { ...update, configOptions: optionsOf(update.configOptions) }
    // Modes are an option, and commands come with the answer that opens a session.
    case 'current_mode_update':
    case 'available_commands_update':
      return undefined
    default:
      return update as v2.SessionUpdate
  }
}

function callOf(call: ToolCallUpdate): v2.ToolCallUpdate {
  const { content, ...rest } = call
  return { ...rest, ...(content == null ? {} : { content: patchesOf(content) }) } as v2.ToolCallUpdate
}

export function stateOf(state: SessionState, isBlocked: boolean): v2.SessionUpdate {
  const sessionUpdate = 'state_update'
  if (state.state === 'running')
    return isBlocked ? { sessionUpdate, state: 'requires_action' } : { sessionUpdate, state: 'running' }
  const { stopReason, error } = state
  if (error !== undefined)
    return { sessionUpdate, state: 'idle', stopReason: 'error', error: errorOf(error) } as v2.SessionUpdate
  return {
    sessionUpdate,
    state: 'idle',
    ...(stopReason === undefined ? {} : { stopReason }),
  } as v2.SessionUpdate
}

/** As the answer to a request has it. */
function errorOf(error: unknown): v2.Error {
  if (error instanceof RequestError) return { code: error.code, message: error.message }
  return { code: -32_603, message: CaissonError.from(error).message }
}

export function insertedOf(messageId: string, prompt: readonly ContentBlock[]): v2.SessionUpdate {
  return { sessionUpdate: 'user_message', messageId, content: prompt as v2.ContentBlock[] }
}

export function permissionOf(
  sessionId: string,
  { toolCall, options }: Omit<RequestPermissionRequest, 'sessionId'>,
): v2.RequestPermissionRequest {
  return {
    ...{ sessionId, title: toolCall.title ?? 'Caisson asks', options },
    subject: { type: 'tool_call', toolCall: callOf(toolCall) },
  }
}

export function formOf(sessionId: string, form: Form): v2.CreateElicitationRequest {
  const { message, requestedSchema, toolCallId } = form
  return {
    ...{ mode: 'form', sessionId, message, requestedSchema },
    ...(toolCallId === undefined ? {} : { toolCallId }),
  } as v2.CreateElicitationRequest
}

export function optionsOf(options: readonly SessionConfigOption[]): v2.SessionConfigOption[] {
  return options.map(({ id, ...option }) => ({ ...option, configId: id }) as v2.SessionConfigOption)
}

export function commandsOf(): v2.AvailableCommand[] {
  return commands.map((command) => ({ type: 'command', ...command }))
}
