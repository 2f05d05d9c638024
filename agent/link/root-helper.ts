/**
 * The client of the root helper's socket: operations that need root in the guest, one connection per request. Returns
 * failures as values and never buffers more than a chunk.
 */
import { Buffer } from 'node:buffer'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import * as z from 'zod'
import { encodeTypedFrame, frameKinds, type TypedFrame, TypedFrameReader } from '#specs/node/typed-frames.ts'

/** Where PID 1 listens unless the environment says otherwise. */
export const DEFAULT_HELPER_SOCKET = '/run/caisson/helper.sock'

/** The helper's own codes, plus `cancelled` by the signal and `unavailable` when the socket fails. */
const helperErrorCodes = ['bad_request', 'not_ready', 'busy', 'no_space', 'internal'] as const
export type HelperErrorCode = (typeof helperErrorCodes)[number] | 'cancelled' | 'unavailable'

export interface HelperError {
  readonly code: HelperErrorCode
  readonly message: string
}

export type HelperResult<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly error: HelperError }

/** Limits of one program; the helper rejects invalid values. */
interface ExecLimits {
  /** Wall time, after which the program is killed with all its descendants. */
  readonly wallMs: number
  readonly memoryBytes: number
  /** Maximum number of processes and threads at once. */
  readonly pids: number
  /** CPU share in percent; 100 is one core. */
  readonly cpuPercent: number
}

export interface ExecRequest {
  /** Program, looked up in PATH unless it contains a slash, and its arguments. */
  readonly argv: readonly string[]
  /** The view used as its workspace; absent: the workspace itself. */
  readonly view?: string
  /** Working directory relative to the workspace; absent: the workspace itself. */
  readonly cwd?: string
  /** Variables added to a clean environment. */
  readonly env?: Readonly<Record<string, string>>
  /** Complete standard input; absent: none. */
  readonly stdin?: string | Uint8Array
  readonly limits: ExecLimits
}

interface HelperExecOptions {
  /** Ends the program and all its descendants. */
  readonly signal?: AbortSignal
  /** Receives output, valid until it returns. While a returned promise is pending, no more output is read. */
  onOutput?(stream: 'stdout' | 'stderr', bytes: Buffer): void | Promise<void>
}

const ok = { ok: z.literal(true) }
const whole = z.int().min(0)
const Failure = z.strictObject({
  ok: z.literal(false),
  error: z.strictObject({ code: z.enum(helperErrorCodes), message: z.string().max(4096) }),
})
const Done = z.strictObject(ok)
const Execution = z.strictObject({
  ...ok,
  /** Exit code; null when a signal ended the program. 128+n when the sandbox reports signal n. */
  exitCode: z.int().min(0).max(255).nullable(),
  signal: z.string().max(20).nullable(),
  timedOut: z.boolean(),
  /** Whether the kernel killed the program for memory. */
  oomKilled: z.boolean(),
  /** Number of forks refused at the limit. */
  pidsRefused: whole,
  durationMs: whole,
})
const View = z.strictObject({
  path: z.string().min(1).max(200),
  start: z.string().min(1).max(200),
  upper: z.string().min(1).max(200),
})
const Views = z.strictObject({ ...ok, views: z.array(View).max(32) })
const Status = z.strictObject({
  ...ok,
  calls: whole,
  agentRestarts: whole,
  memory: z.strictObject({ totalBytes: whole, availableBytes: whole }),
  scratch: z.strictObject({ totalBytes: whole, freeBytes: whole }),
  uptimeMs: whole,
})

export type HelperExecResult = Omit<z.infer<typeof Execution>, 'ok'>
type HelperStatus = Omit<z.infer<typeof Status>, 'ok'>
/**
 * Location of a view: `path` is its tree, `start` a read-only copy from when the view was opened, `upper` the writes,
 * as a hint where to look.
 */
export type ViewPaths = z.infer<typeof View>

/** A person's program, without a wall limit. */
export interface ShellRequest {
  /** The command; empty: the login shell. */
  readonly argv: readonly string[]
  /** Terminal size; null: pipes. */
  readonly terminal: { readonly columns: number; readonly rows: number; readonly term: string } | null
  /** Variables added to a clean environment; absent: none. */
  readonly env?: Readonly<Record<string, string>>
}

export interface Helper {
  /** Mounts the workspace at /mnt/workspace, unless it is mounted. With `readOnly` nothing below it can change. */
  mountWorkspace(readOnly: boolean): Promise<HelperResult<void>>
  /** Ends all programs and discards the workspace's changes. */
  resetWorkspace(keepHome: boolean): Promise<HelperResult<void>>
  /**
   * Creates copy-on-write views of the current workspace, or of a view of it, over one copy of its changes; all of
   * them or none. `busy`: more than 96 views; `no_space`: the copy does not fit on the disk.
   * @param ids 1 to 32, each of 1 to 32 of a-z, 0-9 and -
   * @param source id of the view; absent: the workspace itself
   */
  openViews(ids: readonly string[], source?: string): Promise<HelperResult<readonly ViewPaths[]>>
  /** Ends the programs of views and discards the views; ignores unknown ids. */
  closeViews(ids: readonly string[]): Promise<HelperResult<void>>
  readStatus(): Promise<HelperResult<HelperStatus>>
  /** Runs a program in the sandbox. A program that fails, is killed or runs out of time is also a value. */
  execInSandbox(request: ExecRequest, options?: HelperExecOptions): Promise<HelperResult<HelperExecResult>>
  /**
   * Starts a shell or command. The connection carries its frames both ways; the last frame says how it ended. The
   * program ends with the connection. Rejects when the helper cannot be reached.
   */
  openShell(request: ShellRequest): Promise<Socket>
  /** As above for a program in the sandbox, within its limits, with which the caller communicates while it runs. */
  openProgram(request: Omit<ExecRequest, 'stdin'>): Promise<Socket>
}

export function createHelper(socketPath: string = DEFAULT_HELPER_SOCKET): Helper {
  const askDone = async (request: object): Promise<HelperResult<void>> => {
    const reply = await ask(socketPath, request, Done)
    return reply.ok ? { ok: true, value: undefined } : reply
  }
  return {
    mountWorkspace: (readOnly) => askDone({ op: 'workspace_mount', readOnly }),
    resetWorkspace: (keepHome) => askDone({ op: 'workspace_reset', keepHome }),
    openViews: async (ids, source) => {
      const reply = await ask(socketPath, { op: 'view_open', ids, source: source ?? null }, Views)
      if (!reply.ok) return reply
      const { views } = reply.value
      return views.length === ids.length
        ? { ok: true, value: views }
        : failure('unavailable', `the helper broke its protocol: ${views.length} views for ${ids.length}`)
    },
    closeViews: (ids) => askDone({ op: 'view_close', ids }),
    readStatus: async () => {
      const reply = await ask(socketPath, { op: 'status' }, Status)
      return reply.ok ? { ok: true, value: withoutOk(reply.value) } : reply
    },
    execInSandbox: async ({ argv, view = null, cwd = '', env = {}, stdin, limits }, options = {}) => {
      const request = { op: 'exec', argv, view, cwd, env, stdin: stdin !== undefined, limits }
      const reply = await ask(socketPath, request, Execution, { ...options, stdin })
      return reply.ok ? { ok: true, value: withoutOk(reply.value) } : reply
    },
    openShell: (request) => openStreams(socketPath, { op: 'shell', env: {}, ...request }),
    openProgram: ({ argv, view = null, cwd = '', env = {}, limits }) =>
      openStreams(socketPath, { op: 'exec', argv, view, cwd, env, stdin: true, limits }),
  }
}

async function openStreams(socketPath: string, request: object): Promise<Socket> {
  const frame = encodeTypedFrame(frameKinds.json, Buffer.from(JSON.stringify(request)))
  const socket = connect(socketPath)
  await once(socket, 'connect')
  socket.write(frame)
  return socket
}

interface AskOptions extends HelperExecOptions {
  readonly stdin?: string | Uint8Array | undefined
}

/** Sends one request and reads its reply; every failure is a value. */
async function ask<T extends z.ZodType>(
  socketPath: string,
  request: object,
  replySchema: T,
  options: AskOptions = {},
): Promise<HelperResult<z.output<T>>> {
  const { signal } = options
  const payload = Buffer.from(JSON.stringify(request))
  if (payload.length >= 1024 * 1024) return failure('bad_request', 'arguments and environment are over 1 MiB')
  if (signal?.aborted) return failure('cancelled', 'cancelled before it began')
  const socket = connect(socketPath)
  const abort = (): void => {
    socket.destroy()
  }
  signal?.addEventListener('abort', abort, { once: true })
  try {
    const ended = readReply(socket, options)
    // Read output while writing input, or both sides block. A program may also end without reading.
    const sent = send(socket, payload, options.stdin).catch(() => undefined)
    const reply = await ended
    await sent
    if (signal?.aborted) return failure('cancelled', 'cancelled; the program and its descendants were ended')
    return typeof reply === 'string' ? failure('unavailable', reply) : parseReply(reply, replySchema)
  } catch (error) {
    if (signal?.aborted) return failure('cancelled', 'cancelled; the program and its descendants were ended')
    return failure('unavailable', `helper socket ${socketPath}: ${String(error)}`)
  } finally {
    signal?.removeEventListener('abort', abort)
    socket.destroy()
  }
}

async function send(socket: Socket, payload: Buffer, stdin: string | Uint8Array | undefined): Promise<void> {
  socket.write(encodeTypedFrame(frameKinds.json, payload))
  if (stdin === undefined) return
  const bytes = Buffer.from(stdin)
  const chunkBytes = 64 * 1024
  for (let start = 0; start < bytes.length; start += chunkBytes) {
    const frame = encodeTypedFrame(frameKinds.stdin, bytes.subarray(start, start + chunkBytes))
    if (!socket.write(frame)) await Promise.race([once(socket, 'drain'), once(socket, 'close')])
    if (socket.destroyed) return
  }
  socket.write(encodeTypedFrame(frameKinds.stdin, Buffer.alloc(0)))
}

/** Forwards output until the last frame and returns it; a string describes an error. Throws socket errors. */
async function readReply(socket: Socket, options: AskOptions): Promise<Buffer | string> {
  const reader = new TypedFrameReader()
  for await (const piece of socket) {
    const frames = reader.feed(Buffer.from(piece))
    if (typeof frames === 'string') return `the helper broke its protocol: ${frames}`
    for (const frame of frames) {
      if (frame.kind === frameKinds.json) return frame.payload
      const stream = streamOf(frame)
      if (stream === undefined) return 'the helper broke its protocol: it sent a program input'
      const taken = options.onOutput?.(stream, frame.payload)
      if (taken instanceof Promise) await taken
    }
  }
  return `the helper closed the connection ${reader.isBetweenFrames ? 'without a reply' : 'in the middle of a frame'}`
}

function streamOf({ kind }: TypedFrame): 'stdout' | 'stderr' | undefined {
  if (kind === frameKinds.stdout) return 'stdout'
  return kind === frameKinds.stderr ? 'stderr' : undefined
}

function parseReply<T extends z.ZodType>(payload: Buffer, schema: T): HelperResult<z.output<T>> {
  let value: unknown
  try {
    value = JSON.parse(payload.toString('utf8'))
  } catch {
    return failure('unavailable', 'the helper broke its protocol: its reply is not JSON')
  }
  const failed = Failure.safeParse(value)
  if (failed.success) return failed.data
  const parsed = schema.safeParse(value)
  if (parsed.success) return { ok: true, value: parsed.data }
  return failure('unavailable', 'the helper broke its protocol: its reply has another shape')
}

function withoutOk<T extends { ok: true }>({ ok: _, ...rest }: T): Omit<T, 'ok'> {
  return rest
}

function failure(code: HelperErrorCode, message: string): { ok: false; error: HelperError } {
  return { ok: false, error: { code, message } }
}
