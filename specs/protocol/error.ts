/** The closed lists of errors: in a tool, in a run, on the wire. */
import * as z from 'zod'
import { Text } from './text.ts'

export const toolErrorCodes = [
  'invalid_input',
  'invalid_output',
  'unknown_tool',
  'not_found',
  'already_exists',
  'outside_workspace',
  'not_a_file',
  'not_a_directory',
  'binary_file',
  'too_large',
  'permission_denied',
  'no_space',
  'stale',
  'no_match',
  'ambiguous_match',
  'denied',
  'timed_out',
  'cancelled',
  'limit_reached',
  'unavailable',
  'internal',
] as const

/** A tool call's error; the message is written for a model. */
export const ToolError = z.strictObject({
  code: z.enum(toolErrorCodes),
  message: Text,
  /** Whether the same call can succeed later with the same arguments. */
  retryable: z.boolean(),
})
export type ToolError = z.infer<typeof ToolError>
export type ToolErrorCode = ToolError['code']

/** Why a run ended. Only `completed` goes with the outcome `completed`. */
export const runReasons = [
  'completed',
  'plan_invalid',
  'step_failed',
  'answer_invalid',
  'model_unreachable',
  'model_refused',
  'model_broken',
  'limit_turns',
  'limit_calls',
  'limit_time',
  'limit_tokens',
  'limit_requests',
  'limit_cost',
  'queue_timeout',
  'denied',
  'cancelled',
  'agent_lost',
  'vm_lost',
  'protocol_violation',
  'environment',
  'internal',
] as const
export const RunReason = z.enum(runReasons)
export type RunReason = z.infer<typeof RunReason>

/** Our JSON-RPC error codes, from the range reserved for servers, besides the standard ones. */
export const rpcErrorCodes = {
  parseError: -32700,
  invalidRequest: -32600,
  methodNotFound: -32601,
  invalidParams: -32602,
  internalError: -32603,
  /** The method exists, for the other direction. */
  wrongDirection: -32001,
  /** The receiver cannot do that now, such as a second task while one runs. */
  busy: -32002,
  /** An id is unknown. */
  notFound: -32003,
  /** The operation failed for the reason in the message. */
  failed: -32004,
  /** The caller cancelled. */
  cancelled: -32800,
} as const
export type RpcErrorCode = (typeof rpcErrorCodes)[keyof typeof rpcErrorCodes]

/** A value or a failure, so that nothing throws across a boundary. */
export type Result<T, E = ToolError> = { ok: true; value: T } | { ok: false; error: E }
