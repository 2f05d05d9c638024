/**
 * The typed end of a session: requests and notifications as values of `methods`, validated in both directions on both
 * sides. Never throws for the other side's errors, never sends a stack or a thrown message, and leaves no request
 * pending. Performs no I/O: the connection is passed in.
 */

import type { CancellationToken, Disposable, MessageConnection, ResponseError } from 'vscode-jsonrpc'
import type { z } from 'zod'
import { type Result, type RpcErrorCode, rpcErrorCodes } from './error.ts'
import { plainMessagesWithoutValues } from './issue-text.ts'
import { limits } from './limits.ts'
import { type Method, methods, type NotificationMethod, type RequestMethod } from './methods.ts'

export type Side = 'host' | 'guest'

/** Abort reason of a handler's signal when its session ended, rather than a cancel by the other side. */
export const sessionEnded = 'session_ended'

/** Why a request has no result. After `session_ended` and `timed_out` it is unknown whether it was executed. */
export interface RpcFailure {
  code:
    | 'session_ended'
    | 'timed_out'
    | 'cancelled'
    | 'bad_params'
    | 'bad_result'
    | 'too_large'
    | 'rejected'
    | 'agent_lost'
    | 'closed'
  message: string
  /** The other side's JSON-RPC code, with `rejected`. */
  rpcCode?: number
}

/** A handler's error answer; the message is sent unchanged. */
export interface HandlerFailure {
  code: keyof typeof rpcErrorCodes
  message: string
}

type MethodUnion = (typeof methods)[number]
type Inbound<S extends Side> = S extends 'host' ? 'guest-to-host' : 'host-to-guest'
type InboundMethod<S extends Side> = Extract<MethodUnion, { direction: Inbound<S> }>

export type ParamsOf<M extends Method> = z.output<M['params']>
export type ParamsInput<M extends Method> = z.input<M['params']>
export type ResultOf<M extends RequestMethod> = z.output<M['result']>

export type RequestHandler<M extends RequestMethod> = (
  params: ParamsOf<M>,
  context: { signal: AbortSignal },
) => Promise<Result<z.input<M['result']>, HandlerFailure>>
export type NotificationHandler<M extends NotificationMethod> = (params: ParamsOf<M>) => void | Promise<void>

/** One handler per incoming method, by name. */
export type Handlers<S extends Side> = {
  [M in InboundMethod<S> as M['name']]: M extends RequestMethod
    ? RequestHandler<M>
    : M extends NotificationMethod
      ? NotificationHandler<M>
      : never
}

/** The part of vscode-jsonrpc's connection in use. */
export type PeerConnection = Pick<
  MessageConnection,
  'sendRequest' | 'sendNotification' | 'onRequest' | 'onNotification' | 'listen' | 'dispose'
>

export interface PeerOptions<S extends Side> {
  connection: PeerConnection
  side: S
  handlers: Handlers<S>
  /** Creates the connection's error objects; injected, so that this file imports only types. */
  makeError: (code: number, message: string) => ResponseError<void>
  /** The other side violated the protocol; end the session. */
  onViolation: (message: string) => void
  /** A handler threw or returned an invalid result: a bug on this side. */
  onBug?: (method: string, cause: unknown) => void
  /** Number of active notification handlers, after each change; for back-pressure. */
  onLoad?: (notifications: number) => void
  maxRequests?: number
}

export interface RequestOptions {
  signal?: AbortSignal
  /** Absent: no deadline. */
  timeoutMs?: number
}

export interface Peer {
  request<M extends RequestMethod>(
    method: M,
    params: ParamsInput<M>,
    options?: RequestOptions,
  ): Promise<Result<ResultOf<M>, RpcFailure>>
  /** Resolves when the message was accepted for sending; its delivery is unknown. */
  notify<M extends NotificationMethod>(method: M, params: ParamsInput<M>): Promise<Result<void, RpcFailure>>
  /** Unanswered requests of the other side. */
  readonly openRequests: number
  /** Ends the session: own pending requests fail with `session_ended`, active handlers are aborted. */
  dispose(reason: string): void
}

const methodByName = new Map<string, MethodUnion>(methods.map((method) => [method.name, method]))

/** Listens at once. */
export function createPeer<S extends Side>(options: PeerOptions<S>): Peer {
  const { connection, side } = options
  const maxRequests = options.maxRequests ?? limits.pendingMaxRequests
  const pending = new Set<(failure: RpcFailure) => void>()
  const running = new Set<AbortController>()
  let notifications = 0
  let ended: RpcFailure | null = null

  const fail = (code: RpcErrorCode, message: string): ResponseError<void> =>
    options.makeError(code, message.slice(0, limits.lineMaxChars))

  async function answer(name: string, params: unknown, token: CancellationToken): Promise<unknown> {
    if (running.size >= maxRequests) {
      options.onViolation(`more than ${maxRequests} requests without an answer`)
      return fail(rpcErrorCodes.busy, 'too many requests at once')
    }
    const method = methodByName.get(name)
    if (method === undefined || method.kind !== 'request') {
      return fail(rpcErrorCodes.methodNotFound, 'no such request')
    }
    if (method.direction !== inboundOf(side)) {
      return fail(rpcErrorCodes.wrongDirection, `${method.name} goes the other way`)
    }
    const parsed = method.params.safeParse(params, plainMessagesWithoutValues)
    if (!parsed.success) {
      return fail(rpcErrorCodes.invalidParams, `${method.name}: ${describeIssues(parsed.error)}`)
    }
    const controller = new AbortController()
    const cancel: Disposable = token.onCancellationRequested(() => controller.abort())
    if (token.isCancellationRequested) controller.abort()
    running.add(controller)
    try {
      return await runHandler(method, parsed.data, controller.signal)
    } finally {
      running.delete(controller)
      cancel.dispose()
    }
  }

  async function runHandler(method: RequestMethod, params: unknown, signal: AbortSignal): Promise<unknown> {
    const handler = handlerOf<RequestHandler<RequestMethod>>(options.handlers, method.name)
    try {
      const result = await handler(params, { signal })
      if (!result.ok) return fail(rpcErrorCodes[result.error.code], result.error.message)
      const parsed = method.result.safeParse(result.value, plainMessagesWithoutValues)
      if (parsed.success) return parsed.data
      options.onBug?.(method.name, parsed.error)
    } catch (cause) {
      options.onBug?.(method.name, cause)
    }
    return fail(rpcErrorCodes.internalError, `${method.name} failed inside its handler`)
  }

  async function take(name: string, params: unknown): Promise<void> {
    const method = methodByName.get(name)
    if (method === undefined || method.kind !== 'notification') {
      options.onViolation('an unknown notification')
      return
    }
    if (method.direction !== inboundOf(side)) {
      options.onViolation(`${method.name}, which goes the other way`)
      return
    }
    const parsed = method.params.safeParse(params, plainMessagesWithoutValues)
    if (!parsed.success) {
      options.onViolation(`${method.name} that breaks its schema: ${describeIssues(parsed.error)}`)
      return
    }
    const handler = handlerOf<NotificationHandler<NotificationMethod>>(options.handlers, method.name)
    options.onLoad?.(++notifications)
    try {
      await handler(parsed.data)
    } catch (cause) {
      options.onBug?.(method.name, cause)
    }
    options.onLoad?.(--notifications)
  }

  connection.onRequest((name: string, params: unknown, token: CancellationToken) =>
    ended === null ? answer(name, params, token) : fail(rpcErrorCodes.internalError, 'the session has ended'),
  )
  connection.onNotification((name: string, params: unknown) =>
    ended === null ? take(name, params) : undefined,
  )
  connection.listen()

  function request<M extends RequestMethod>(
    method: M,
    params: ParamsInput<M>,
    { signal, timeoutMs }: RequestOptions = {},
  ): Promise<Result<ResultOf<M>, RpcFailure>> {
    assertOutbound(side, method)
    const sent = method.params.safeParse(params, plainMessagesWithoutValues)
    if (!sent.success) return failed('bad_params', `${method.name}: ${describeIssues(sent.error)}`)
    if (ended !== null) return Promise.resolve({ ok: false, error: ended })
    if (signal?.aborted) return failed('cancelled', `${method.name} was cancelled before it was sent`)
    return new Promise((resolve) => {
      const cancellation = makeCancellation()
      let timer: ReturnType<typeof setTimeout> | undefined
      const settle = (result: Result<ResultOf<M>, RpcFailure>): void => {
        clearTimeout(timer)
        signal?.removeEventListener('abort', onAbort)
        pending.delete(settleFailed)
        resolve(result)
      }
      const settleFailed = (error: RpcFailure): void => settle({ ok: false, error })
      const giveUp = (code: 'cancelled' | 'timed_out', message: string): void => {
        settleFailed({ code, message })
        cancellation.cancel()
      }
      const onAbort = (): void => giveUp('cancelled', `${method.name} was cancelled`)
      pending.add(settleFailed)
      signal?.addEventListener('abort', onAbort, { once: true })
      if (timeoutMs !== undefined) {
        const message = `${method.name} was not answered within ${timeoutMs} ms`
        timer = setTimeout(() => giveUp('timed_out', message), timeoutMs)
      }
      guarded(() => connection.sendRequest<unknown>(method.name, sent.data, cancellation.token)).then(
        (value) => {
          const parsed = method.result.safeParse(value, plainMessagesWithoutValues)
          if (parsed.success) settle({ ok: true, value: parsed.data as ResultOf<M> })
          else
            settleFailed({ code: 'bad_result', message: `${method.name}: ${describeIssues(parsed.error)}` })
        },
        (cause: unknown) => settleFailed(ended ?? failureOf(method.name, cause)),
      )
    })
  }

  async function notify<M extends NotificationMethod>(
    method: M,
    params: ParamsInput<M>,
  ): Promise<Result<void, RpcFailure>> {
    assertOutbound(side, method)
    const sent = method.params.safeParse(params, plainMessagesWithoutValues)
    if (!sent.success) return failed('bad_params', `${method.name}: ${describeIssues(sent.error)}`)
    if (ended !== null) return { ok: false, error: ended }
    try {
      await connection.sendNotification(method.name, sent.data)
      return { ok: true, value: undefined }
    } catch (cause) {
      return { ok: false, error: ended ?? failureOf(method.name, cause) }
    }
  }

  function dispose(reason: string): void {
    if (ended !== null) return
    ended = { code: 'session_ended', message: reason }
    for (const controller of running) controller.abort(sessionEnded)
    connection.dispose()
    for (const settleFailed of [...pending]) settleFailed(ended)
  }

  return {
    request,
    notify,
    dispose,
    get openRequests() {
      return running.size
    },
  }
}

function inboundOf(side: Side): Method['direction'] {
  return side === 'host' ? 'guest-to-host' : 'host-to-guest'
}

/** Sending in the wrong direction is a caller's bug. */
function assertOutbound(side: Side, method: Method): void {
  if (method.direction === inboundOf(side)) throw new TypeError(`${method.name} goes the other way`)
}

/** The map is typed by name for its authors; here it is read by a name found in `methods`. */
function handlerOf<H>(handlers: object, name: string): H {
  return (handlers as Record<string, H>)[name] as H
}

async function guarded<T>(send: () => Promise<T>): Promise<T> {
  return await send()
}

function failed(code: RpcFailure['code'], message: string): Promise<{ ok: false; error: RpcFailure }> {
  return Promise.resolve({ ok: false, error: { code, message } })
}

/** An error of the connection or of the other side; its text is bounded, and untrusted when `rejected`. */
function failureOf(name: string, cause: unknown): RpcFailure {
  const { code, message } = cause as { code?: unknown; message?: unknown }
  const text = typeof message === 'string' ? message.slice(0, limits.textMaxChars) : 'no reason given'
  if (cause instanceof Error && cause.name === 'FrameTooLongError') {
    return { code: 'too_large', message: `${name}: ${text}` }
  }
  if (code === rpcErrorCodes.cancelled) return { code: 'cancelled', message: text }
  // -32099: vscode-jsonrpc's own code for a message that could not be written.
  if (code === -32099)
    return { code: text.includes('a frame holds') ? 'too_large' : 'session_ended', message: text }
  if (typeof code === 'number') return { code: 'rejected', message: text, rpcCode: code }
  return { code: 'session_ended', message: text }
}

/** Path and kind, never the offending value. */
function describeIssues(error: z.ZodError): string {
  const first = error.issues[0]
  if (first === undefined) return 'does not match its schema'
  const where = first.path.map((part) => String(part).slice(0, 64)).join('.')
  const more = error.issues.length > 1 ? ` (and ${error.issues.length - 1} more)` : ''
  return `${where === '' ? 'params' : where.slice(0, 200)}: ${issueText(first)}${more}`
}

/** Messages contain unknown keys, the other side's text; the code does not. */
function issueText(issue: z.core.$ZodIssue): string {
  return issue.code === 'unrecognized_keys' ? 'has a key that is not known' : issue.message.slice(0, 200)
}

function makeCancellation(): { token: CancellationToken; cancel(): void } {
  const listeners = new Set<() => void>()
  let cancelled = false
  const token = {
    get isCancellationRequested() {
      return cancelled
    },
    onCancellationRequested(listener: () => void): Disposable {
      listeners.add(listener)
      return { dispose: () => void listeners.delete(listener) }
    },
  }
  return {
    token: token as CancellationToken,
    cancel() {
      cancelled = true
      for (const listener of [...listeners]) listener()
    },
  }
}
