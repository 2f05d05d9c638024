// `caisson acp` as an editor starts it: a child process, with the client side of the SDK on its pipes. A program stands in
// the place of QEMU, and a server of the test answers for the model.
import { type ChildProcessByStdio, spawn } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Readable, Writable } from 'node:stream'
import {
  type AnyMessage,
  type ClientCapabilities,
  type ClientContext,
  type ContentBlock,
  type CreateElicitationRequest,
  type CreateElicitationResponse,
  client,
  methods,
  ndJsonStream,
  type RequestPermissionRequest,
  type RequestPermissionResponse,
  type SessionUpdate,
} from '@agentclientprotocol/sdk'
import { afterAll, beforeAll, onTestFinished } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { type Asked, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { FrameSchema, type ProtocolVersion } from '../../host/acp/schema.ts'
import { Host } from '../../host/index.ts'
import { cliPlace, type Place } from '../../host/test/support/cli.ts'
import { cliProgram } from '../../host/test/support/cli-program.ts'
import { type InstalledMachine, installMachine } from '../recovery/machine/install.ts'

/** Installs the machine for the tests of a file. */
export function useMachine(): () => InstalledMachine {
  let folder = ''
  let machine: InstalledMachine | undefined
  beforeAll(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'caisson-acp-'))
    machine = await installMachine(folder)
  }, 120_000)
  afterAll(async () => await rm(folder, { recursive: true, force: true, maxRetries: 5 }))
  return () => {
    if (machine === undefined) throw new Error('the machine is installed before each test')
    return machine
  }
}

/** A call of a tool. */
export const call = (name: string, args: object): ServerReply =>
  reply({ calls: [{ id: 'c1', name, arguments: JSON.stringify(args) }] })

/** The last message that the model got is the result of a tool. */
export const hasResult = ({ messages }: Asked): boolean => messages.at(-1)?.role === 'tool'

export interface EditorPlace extends Place {
  readonly host: Host
}

/** A workspace, and a model that answers so. */
export async function editorPlace(
  machine: InstalledMachine,
  files: Readonly<Record<string, string>>,
  answer: (asked: Asked) => ServerReply,
): Promise<EditorPlace> {
  const model = await startModelServer(answer)
  onTestFinished(async () => await model[Symbol.asyncDispose]())
  const place = await cliPlace(files, {
    PATH: `${machine.programs}:${process.env.PATH}`,
    CAISSON_CACHE: machine.cache,
    CAISSON_LLM_URL: model.baseUrl,
    CAISSON_LLM_KEY: 'sk-some-key-of-the-test',
    CAISSON_MODEL: 'scripted',
  })
  return { ...place, host: new Host({ env: place.env }) }
}

export interface EditorOptions {
  readonly capabilities?: ClientCapabilities
  readonly permit?: (
    request: RequestPermissionRequest,
  ) => RequestPermissionResponse | Promise<RequestPermissionResponse>
  readonly fill?: (request: CreateElicitationRequest) => CreateElicitationResponse
  readonly readFile?: (file: string) => string
  readonly writeFile?: (file: string, content: string) => void
  /** Options of `caisson acp`. */
  readonly flags?: readonly string[]
  /** The client side that has forks of sessions, which is not stable. */
  readonly client?: typeof client
}

export interface TestEditor {
  readonly agent: ClientContext
  readonly program: AcpProgram
  readonly updates: SessionUpdate[]
  readonly permissions: RequestPermissionRequest[]
  readonly forms: CreateElicitationRequest[]
  /** Frames that do not fit the protocol, of either side. */
  readonly faults: string[]
  /** What the agent said. */
  said(): string
  close(): Promise<void>
}

export interface AcpProgram {
  readonly child: ChildProcessByStdio<Writable, Readable, Readable>
  errors(): string
  /** Its exit code. */
  readonly ended: Promise<number | null>
}

/** Starts it as an editor does. */
export function startProgram(place: Place, flags: readonly string[]): AcpProgram {
  const argv = ['--conditions=caisson-source', '--', cliProgram, 'acp', ...flags]
  const child = spawn(process.execPath, argv, {
    ...{ env: place.env, cwd: place.workspace, stdio: ['pipe', 'pipe', 'pipe'] },
  })
  let errors = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors += text
  })
  child.stdin.on('error', () => undefined)
  const ended = new Promise<number | null>((resolve) => child.on('close', resolve))
  onTestFinished(() => void child.kill('SIGKILL'))
  return { child, ended, errors: () => errors }
}

/** Options of a VM that the machine of the tests can be. */
export const vmFlags = ['--ram', '256M', '--disk', '64M', '--no-template']

export async function openEditor(place: Place, options: EditorOptions = {}): Promise<TestEditor> {
  const program = startProgram(place, options.flags ?? vmFlags)
  const { stdin, stdout } = program.child
  const [updates, permissions, forms, faults] = [
    [] as SessionUpdate[],
    [] as RequestPermissionRequest[],
    [] as CreateElicitationRequest[],
    [] as string[],
  ]
  const app = (options.client ?? client)({ name: 'test' })
    .onNotification(methods.client.session.update, ({ params }) => {
      updates.push(params.update)
    })
    .onRequest(methods.client.session.requestPermission, async ({ params, signal }) => {
      permissions.push(params)
      const withdrawn = new Promise<RequestPermissionResponse>((resolve) =>
        signal.addEventListener('abort', () => resolve({ outcome: { outcome: 'cancelled' } })),
      )
      return await Promise.race([options.permit?.(params) ?? withdrawn, withdrawn])
    })
    .onRequest(methods.client.elicitation.create, ({ params }) => {
      forms.push(params)
      return options.fill?.(params) ?? { action: 'cancel' }
    })
    .onRequest(methods.client.fs.readTextFile, ({ params }) => ({
      content: options.readFile?.(params.path) ?? '',
    }))
    .onRequest(methods.client.fs.writeTextFile, ({ params }) => {
      options.writeFile?.(params.path, params.content)
      return {}
    })
  const stream = ndJsonStream(
    Writable.toWeb(stdin) as WritableStream<Uint8Array>,
    Readable.toWeb(stdout) as ReadableStream<Uint8Array>,
  )
  const connection = app.connect({
    writable: stream.writable,
    readable: stream.readable.pipeThrough(judge(faults, 1, options.client !== undefined)),
  })
  await connection.agent.request(methods.agent.initialize, {
    protocolVersion: 1,
    clientInfo: { name: 'test-editor', version: '1' },
    clientCapabilities: options.capabilities ?? {},
  })
  return {
    ...{ agent: connection.agent, program, updates, permissions, forms, faults },
    said: () =>
      updates
        .map((update) =>
          update.sessionUpdate === 'agent_message_chunk' && update.content.type === 'text'
            ? update.content.text
            : '',
        )
        .join(''),
    close: async () => {
      stdin.end()
      await program.ended
    },
  }
}

/** Checks all that the agent sends by itself. */
export function judge(
  faults: string[],
  version: ProtocolVersion = 1,
  hasFork = false,
): TransformStream<AnyMessage, AnyMessage> {
  const schema = new FrameSchema(version, hasFork)
  return new TransformStream({
    transform: (message, controller) => {
      if ('method' in message && typeof message.method === 'string') {
        const params = 'params' in message ? message.params : {}
        const fault = schema.findFault('client', message.method, 'params', params)
        if (fault !== undefined) faults.push(`${message.method}: ${fault}`)
      }
      controller.enqueue(message)
    },
  })
}

/** Chooses the first option with one of these names or kinds. */
export function choose(...wanted: readonly string[]): NonNullable<EditorOptions['permit']> {
  return ({ options }) => {
    const option = options.find(({ name, kind }) => wanted.includes(name) || wanted.includes(kind))
    return option === undefined
      ? { outcome: { outcome: 'cancelled' } }
      : { outcome: { outcome: 'selected', optionId: option.optionId } }
  }
}

export async function newSession({ agent }: TestEditor, cwd: string): Promise<string> {
  return (await agent.request(methods.agent.session.new, { cwd, mcpServers: [] })).sessionId
}

export async function ask({ agent }: TestEditor, sessionId: string, text: string): Promise<string> {
  const prompt: ContentBlock[] = [{ type: 'text', text }]
  return (await agent.request(methods.agent.session.prompt, { sessionId, prompt })).stopReason
}
