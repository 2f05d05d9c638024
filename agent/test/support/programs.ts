/**
 * The root side as the agent finds it when it starts programs: the same socket and frames, the programs child
 * processes of the test.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { encodeTypedFrame, type FrameKind, frameKinds, TypedFrameReader } from '#specs/node/typed-frames.ts'
import { createHelper, type ExecRequest, type Helper } from '../../link/root-helper.ts'

export type ProgramRequest = Omit<ExecRequest, 'stdin'>

export class TestPrograms implements AsyncDisposable {
  /** What was asked for, in order. */
  readonly requests: ProgramRequest[] = []
  readonly helper: Helper
  readonly #folder: string
  readonly #server: Server
  readonly #running = new Set<ChildProcess>()

  /** Where programs start. */
  readonly workspace: string

  constructor(folder: string) {
    this.#folder = folder
    this.workspace = path.join(folder, 'workspace')
    mkdirSync(this.workspace)
    const socket = path.join(folder, 'helper.sock')
    this.helper = createHelper(socket)
    this.#server = createServer((connection) => this.#serve(connection)).listen(socket)
  }

  static async open(): Promise<TestPrograms> {
    const programs = new TestPrograms(mkdtempSync(path.join(tmpdir(), 'caisson-programs-')))
    await once(programs.#server, 'listening')
    return programs
  }

  /** Programs that have not ended. */
  get running(): number {
    return this.#running.size
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const child of this.#running) killGroup(child)
    await new Promise((resolve) => this.#server.close(resolve))
    rmSync(this.#folder, { recursive: true, force: true })
  }

  #serve(connection: Socket): void {
    const reader = new TypedFrameReader()
    let child: ChildProcess | undefined
    connection.on('error', () => undefined)
    connection.on('data', (piece: Buffer) => {
      const frames = reader.feed(piece)
      if (typeof frames === 'string') throw new Error(frames)
      for (const { kind, payload } of frames) {
        if (kind === frameKinds.json) child = this.#begin(JSON.parse(payload.toString()), connection)
        else if (payload.length === 0) child?.stdin?.end()
        else child?.stdin?.write(payload)
      }
    })
    connection.once('close', () => child !== undefined && killGroup(child))
  }

  /** Undefined where no program was asked for: there is nothing else here. */
  #begin(request: ProgramRequest & { readonly op: string }, connection: Socket): ChildProcess | undefined {
    if (request.op === 'exec') return this.#start(request, connection)
    const error = { code: 'not_ready', message: 'not here' }
    connection.end(encodeTypedFrame(frameKinds.json, Buffer.from(JSON.stringify({ ok: false, error }))))
    return undefined
  }

  #start(request: ProgramRequest, connection: Socket): ChildProcess {
    this.requests.push(request)
    const { argv, env = {} } = request
    const [command = '', ...args] = argv
    // The Node of this process is the one of the guest.
    const PATH = `${path.dirname(process.execPath)}:${process.env.PATH}`
    const child = spawn(command, args, { env: { PATH, ...env }, cwd: this.workspace, detached: true })
    this.#running.add(child)
    const send = (kind: FrameKind) => (piece: Buffer) => {
      if (connection.writable) connection.write(encodeTypedFrame(kind, piece))
    }
    child.stdout.on('data', send(frameKinds.stdout))
    child.stderr.on('data', send(frameKinds.stderr))
    child.stdin.on('error', () => undefined)
    const end = (reply: object): void => {
      this.#running.delete(child)
      killGroup(child)
      if (connection.writable)
        connection.end(encodeTypedFrame(frameKinds.json, Buffer.from(JSON.stringify(reply))))
    }
    child.once('error', ({ message }) => end({ ok: false, error: { code: 'bad_request', message } }))
    const facts = { timedOut: false, oomKilled: false, pidsRefused: 0, durationMs: 1 }
    const timer = setTimeout(() => {
      facts.timedOut = true
      killGroup(child)
    }, request.limits.wallMs)
    child.once('exit', (exitCode, signal) => {
      clearTimeout(timer)
      setTimeout(() => end({ ok: true, exitCode, signal, ...facts }), 50)
    })
    return child
  }
}

function killGroup(child: ChildProcess): void {
  if (child.pid === undefined) return
  try {
    process.kill(-child.pid, 'SIGKILL')
  } catch {
    // There is nobody left.
  }
}
