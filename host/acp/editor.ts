/**
 * What a session says to its editor and asks it, by whichever version of the protocol. The forms are those of version 1. An
 * answer that does not come, or is none, decides nothing.
 */
import type {
  ContentBlock,
  CreateElicitationResponse,
  RequestPermissionRequest,
  RequestPermissionResponse,
  SessionUpdate,
  StopReason,
} from '@agentclientprotocol/sdk'
import { errorMessage } from '#specs/errors.ts'

export interface Form {
  readonly message: string
  readonly requestedSchema: object
  /** The call that the question belongs to; undefined for one that is not under way. */
  readonly toolCallId: string | undefined
}

/** Whether a session is at work. */
export type SessionState =
  | { readonly state: 'running' }
  /** Absent `stopReason`: nothing ended just now. `error`: why the work failed. */
  | { readonly state: 'idle'; readonly stopReason?: StopReason; readonly error?: unknown }

export interface Editor {
  readonly hasForms: boolean
  tell(updates: readonly SessionUpdate[]): Promise<void>
  show(state: SessionState): Promise<void>
  /** A prompt is part of the session from now on. */
  insert(messageId: string, prompt: readonly ContentBlock[]): Promise<void>
  /** Undefined: nothing was chosen. @param signal withdraws the question */
  askPermission(
    request: Omit<RequestPermissionRequest, 'sessionId'>,
    signal: AbortSignal,
  ): Promise<RequestPermissionResponse | undefined>
  /** Undefined: nobody answered. */
  askForm(form: Form, signal: AbortSignal): Promise<CreateElicitationResponse | undefined>
  /** Reads a file as the editor has it, saved or not. Undefined: the editor offers none. */
  readonly readFile: ((file: string) => Promise<string | undefined>) | undefined
  /** Gives a file another text and saves it. Undefined: the editor offers none. @returns whether it did */
  readonly writeFile: ((file: string, content: string) => Promise<boolean>) | undefined
}

/** The answer to a request; undefined where none came. */
export async function settled<T>(
  waiting: Promise<T>,
  signal: AbortSignal,
  log: (line: string) => void,
): Promise<T | undefined> {
  try {
    return await waiting
  } catch (error) {
    if (!signal.aborted) log(`the editor did not answer: ${errorMessage(error)}`)
    return undefined
  }
}
