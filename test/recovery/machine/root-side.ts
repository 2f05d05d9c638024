/**
 * The root side of the guest: the helper's socket, and the privileged port. Its programs run in folders on this machine,
 * as children in the machine's process group, so that nothing of them outlives it.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { rmSync } from 'node:fs'
import { createServer, type Socket } from 'node:net'
import path from 'node:path'
import type { Duplex } from 'node:stream'
import * as z from 'zod'
import { encodeTypedFrame, type FrameKind, frameKinds, TypedFrameReader } from '#specs/node/typed-frames.ts'

const Id = z.string().regex(/^[a-z0-9-]{1,32}$/)
const Request = z.discriminatedUnion('op', [
  z.looseObject({ op: z.literal('workspace_mount') }),
  z.looseObject({ op: z.literal('workspace_reset') }),
  z.looseObject({ op: z.literal('view_open'), ids: z.array(Id) }),
  z.looseObject({ op: z.literal('view_close'), ids: z.array(Id) }),
  z.looseObject({
    op: z.literal('exec'),
    argv: z.array(z.string()).min(1),
    view: Id.nullable(),
    cwd: z.string(),
    env: z.record(z.string(), z.string()),
  }),
])
type Exec = Extract<z.infer<typeof Request>, { op: 'exec' }>

export interface RootFolders {
  readonly workspace: string
  readonly views: string
}

export function serveHelper(socket: string, folders: RootFolders): void {
  createServer((connection) => {
    const reader = new TypedFrameReader()
    let child: ChildProcess | undefined
    connection.on('error', () => undefined)
    connection.on('data', (piece: Buffer) => {
      const frames = reader.feed(piece)
      if (typeof frames === 'string') return void connection.destroy()
      for (const { kind, payload } of frames) {
        if (kind === frameKinds.json) child = serve(payload, connection, folders)
        else if (payload.length === 0) child?.stdin?.end()
        else child?.stdin?.write(payload)
      }
    })
    connection.once('close', () => child?.kill('SIGKILL'))
  }).listen(socket)
}

function serve(payload: Buffer, connection: Socket, folders: RootFolders): ChildProcess | undefined {
  const parsed = Request.safeParse(JSON.parse(payload.toString('utf8')))
  if (!parsed.success) return reply(connection, failure('bad_request', 'this machine cannot do that'))
  const request = parsed.data
  switch (request.op) {
    case 'exec':
      return start(request, connection, folders)
    case 'view_open':
      return reply(connection, { ok: true, views: request.ids.map((id) => openView(id, folders)) })
    case 'view_close':
      for (const id of request.ids)
        for (const name of [id, `${id}.start`])
          rmSync(path.join(folders.views, name), { recursive: true, force: true })
      return reply(connection, { ok: true })
    default:
      return reply(connection, { ok: true })
  }
}

/** Copies, where a guest puts overlays. */
function openView(id: string, { workspace, views }: RootFolders): object {
  const [tree, start] = [path.join(views, id), path.join(views, `${id}.start`)]
  for (const copy of [tree, start]) {
    rmSync(copy, { recursive: true, force: true })
    execFileSync('cp', ['-a', workspace, copy])
  }
  return { path: tree, start, upper: path.join(views, 'none') }
}

function start({ argv, view, cwd, env }: Exec, connection: Socket, folders: RootFolders): ChildProcess {
  const [command = '', ...args] = argv
  const tree = view === null ? folders.workspace : path.join(folders.views, view)
  const startedAt = performance.now()
  const child = spawn(command, args, {
    cwd: path.join(tree, cwd),
    // The Node of this process is the one of the guest.
    env: { PATH: `${path.dirname(process.execPath)}:/usr/bin:/bin`, HOME: folders.views, ...env },
  })
  const send = (kind: FrameKind) => (piece: Buffer) => {
    if (connection.writable) connection.write(encodeTypedFrame(kind, piece))
  }
  child.stdout.on('data', send(frameKinds.stdout))
  child.stderr.on('data', send(frameKinds.stderr))
  child.stdin.on('error', () => undefined)
  child.once('error', ({ message }) => reply(connection, failure('bad_request', message)))
  child.once('close', (exitCode, signal) => {
    const durationMs = Math.round(performance.now() - startedAt)
    const rest = { timedOut: false, oomKilled: false, pidsRefused: 0, durationMs }
    reply(connection, { ok: true, exitCode, signal, ...rest })
  })
  return child
}

function failure(code: string, message: string): object {
  return { ok: false, error: { code, message } }
}

function reply(connection: Socket, value: object): undefined {
  if (connection.writable)
    connection.end(encodeTypedFrame(frameKinds.json, Buffer.from(JSON.stringify(value))))
}

const MESSAGE_BYTES = 80
const MAGIC_BYTES = 8
const FLUSH_MAGIC = 'CAISSONC'
const FAILED = 1n << 63n

/** Random bytes and the time are taken, as nothing here was copied from a template. */
export function servePrivilegedPort(port: Duplex, flush: () => void): void {
  let unread = Buffer.alloc(0)
  port.on('data', (chunk: Buffer) => {
    unread = Buffer.concat([unread, chunk])
    for (; unread.length >= MESSAGE_BYTES; unread = unread.subarray(MESSAGE_BYTES)) {
      const answer = Buffer.from(unread.subarray(0, 2 * MAGIC_BYTES))
      const isFlush = answer.toString('latin1', 0, MAGIC_BYTES) === FLUSH_MAGIC
      if (isFlush && !succeeds(flush))
        answer.writeBigUInt64BE(answer.readBigUInt64BE(MAGIC_BYTES) | FAILED, MAGIC_BYTES)
      port.write(answer)
    }
  })
}

function succeeds(work: () => void): boolean {
  try {
    work()
    return true
  } catch (error) {
    process.stderr.write(`flush: ${error}\n`)
    return false
  }
}
