/**
 * The agent of the Agent Client Protocol, version 1: an editor starts this process and speaks to it on its standard streams.
 * Runs are carried out elsewhere, so they outlive the editor; nothing is allowed because the editor is gone.
 */

import { randomBytes } from 'node:crypto'
import type { Readable, Writable } from 'node:stream'
import {
  type AgentContext,
  agent,
  type ClientCapabilities,
  type InitializeRequest,
  type InitializeResponse,
  MessageTooLargeError,
  methods,
  type NewSessionRequest,
  PROTOCOL_VERSION,
} from '@agentclientprotocol/sdk'
import type { CleanText } from '#specs/protocol/shown-text.ts'
import { CaissonError, type Host, type RunOptions } from '../index.ts'
import { Editor } from './editor.ts'
import { openFrames } from './frames.ts'
import { deleteSession, findSession, listSessions, tellAgain } from './history.ts'
import { takeMcpServers } from './mcp-servers.ts'
import { OpenSessions } from './open-sessions.ts'
import { answering, invalidParams, noSession, notPossibleNow } from './refusals.ts'
import { commands, type RunStarter, Session } from './session.ts'
import {
  configOptions,
  describeRefused,
  type ModelChoices,
  modelChoices,
  modeState,
  withOption,
} from './settings.ts'
import { thought } from './updates.ts'
import { checkDirectory, requireAbsolute } from './workspace-files.ts'

export interface AcpOptions {
  readonly host: Host
  readonly runs: RunStarter
  readonly input: Readable
  /** Gets frames only. */
  readonly output: Writable
  readonly version: string
  readonly words: CleanText
  readonly log: (line: string) => void
  readonly options: Pick<RunOptions, 'vm'>
}

/** Serves until the editor closes the connection. @throws {CaissonError} `limit_reached` for a frame that is too long */
export async function serveAcp(options: AcpOptions): Promise<void> {
  const served = new AcpAgent(options)
  const connection = served.open()
  await connection.closed
  served.leave()
  const { reason } = connection.signal
  if (reason instanceof MessageTooLargeError)
    throw new CaissonError(
      'limit_reached',
      `the editor sent a frame longer than ${reason.maxMessageBytes} bytes`,
    )
}

/** What a session is opened with. */
type Opened = Pick<NewSessionRequest, 'cwd'> & Partial<Pick<NewSessionRequest, 'mcpServers'>>

class AcpAgent {
  readonly #options: AcpOptions
  readonly #sessions = new OpenSessions()
  #capabilities: ClientCapabilities = {}
  #by = 'an ACP client'
  #models: Promise<ModelChoices> | undefined

  constructor(options: AcpOptions) {
    this.#options = options
  }

  open() {
    const { log } = this.#options
    const app = agent({ name: 'caisson' })
    // First: the SDK asks handlers in turn, and refuses requests that came right behind this one until it is answered.
    app.onRequest(
      methods.agent.initialize,
      answering(({ params }) => this.#initialize(params), log),
    )
    this.#handleSessions(app)
    app
      .onRequest(
        methods.agent.authenticate,
        answering(() => {
          throw notPossibleNow('this agent needs no authentication; start a session')
        }, log),
      )
      .onRequest(
        methods.agent.session.setMode,
        answering(async ({ params, client }) => {
          await this.#set(params.sessionId, 'mode', params.modeId, client)
          return {}
        }, log),
      )
      .onRequest(
        methods.agent.session.setConfigOption,
        answering(async ({ params, client }) => {
          const session = await this.#set(params.sessionId, params.configId, params.value, client)
          return { configOptions: (await this.#stateOf(session)).configOptions }
        }, log),
      )
      .onRequest(
        methods.agent.session.prompt,
        answering(
          async ({ params }) => ({
            stopReason: await this.#sessions.find(params.sessionId).prompt(params.prompt),
          }),
          log,
        ),
      )
      .onNotification(methods.agent.session.cancel, async ({ params }) => {
        await this.#sessions.get(params.sessionId)?.cancel()
      })
    return app.connect(openFrames(this.#options))
  }

  /** How sessions begin and end. */
  #handleSessions(app: ReturnType<typeof agent>): void {
    const { host, words, log } = this.#options
    app
      .onRequest(
        methods.agent.session.new,
        answering(async ({ params, client }) => await this.#begin(params, client), log),
      )
      .onRequest(
        methods.agent.session.load,
        answering(async ({ params, client }) => await this.#restore(params, client, true), log),
      )
      .onRequest(
        methods.agent.session.resume,
        answering(async ({ params, client }) => await this.#restore(params, client, false), log),
      )
      .onRequest(
        methods.agent.session.list,
        answering(async ({ params: { cwd = null } }) => {
          const directory = cwd === null ? null : requireAbsolute(cwd)
          return { sessions: await listSessions(host, directory, words) }
        }, log),
      )
      .onRequest(
        methods.agent.session.close,
        answering(async ({ params }) => {
          await this.#sessions.find(params.sessionId).cancel()
          this.#sessions.drop(params.sessionId)
          return {}
        }, log),
      )
      .onRequest(
        methods.agent.session.delete,
        answering(async ({ params }) => {
          await deleteSession(host, params.sessionId)
          this.#sessions.drop(params.sessionId)
          return {}
        }, log),
      )
  }

  leave(): void {
    this.#sessions.leave()
  }

  #initialize({ clientCapabilities, clientInfo }: InitializeRequest): InitializeResponse {
    this.#capabilities = clientCapabilities ?? {}
    const name = clientInfo?.title ?? clientInfo?.name ?? ''
    if (name !== '') this.#by = `${this.#options.words.line(name, 100)} (ACP)`
    return {
      protocolVersion: PROTOCOL_VERSION,
      agentInfo: { name: 'caisson', title: 'Caisson', version: this.#options.version },
      agentCapabilities: {
        loadSession: true,
        promptCapabilities: { image: true, audio: false, embeddedContext: true },
        mcpCapabilities: { http: true, sse: false },
        sessionCapabilities: { list: {}, delete: {}, resume: {}, close: {} },
      },
      authMethods: [],
    }
  }

  async #begin(given: NewSessionRequest, client: AgentContext) {
    const sessionId = `session-${randomBytes(10).toString('hex')}`
    const { session, editor } = await this.#create(sessionId, given, client)
    const state = await this.#stateOf(session)
    this.#tellLater(sessionId, editor, session)
    return { sessionId, ...state }
  }

  async #create(sessionId: string, { cwd, mcpServers }: Opened, client: AgentContext) {
    const directory = await checkDirectory(cwd)
    this.#sessions.requirePlace(sessionId)
    const { host, runs, words, log, options } = this.#options
    const configured = Object.keys((await host.config()).mcpServers)
    const mcp = takeMcpServers(mcpServers ?? [], configured)
    const editor = new Editor({ client, sessionId, capabilities: this.#capabilities, log })
    const parts = { directory, host, runs, editor, words, by: this.#by, log, options, mcp }
    const session = new Session({ id: sessionId, ...parts })
    this.#sessions.add(sessionId, session)
    return { session, editor }
  }

  async #restore(given: Opened & { readonly sessionId: string }, client: AgentContext, isShown: boolean) {
    const { host, words } = this.#options
    const { sessionId } = given
    const runs = await findSession(host, sessionId, await checkDirectory(given.cwd))
    const { session, editor } = await this.#create(sessionId, given, client)
    const past = await tellAgain(host, runs, words, async (updates) => {
      if (isShown) await editor.tell(updates)
    })
    if (past === undefined) throw noSession(sessionId, 'unknown')
    session.settings = past.settings
    const state = await this.#stateOf(session)
    // Behind the answer, so that the editor knows the session by then.
    setImmediate(() => {
      void session.restore(past).catch((error: unknown) => this.#options.log(String(error)))
    })
    this.#tellLater(sessionId, editor, session)
    return state
  }

  async #set(sessionId: string, option: string, value: unknown, client: AgentContext): Promise<Session> {
    const session = this.#sessions.find(sessionId)
    const models = await this.#offeredModels()
    const settings = withOption(session.settings, models, option, value)
    if (settings === undefined) throw invalidParams(describeRefused(session.settings, models, option, value))
    session.settings = settings
    if (option === 'mode') {
      const update = { sessionUpdate: 'current_mode_update' as const, currentModeId: settings.mode }
      await client.notify(methods.client.session.update, { sessionId, update })
    }
    const options = configOptions(settings, models)
    const update = { sessionUpdate: 'config_option_update' as const, configOptions: options }
    await client.notify(methods.client.session.update, { sessionId, update })
    return session
  }

  async #stateOf({ settings }: Session) {
    return { modes: modeState(settings), configOptions: configOptions(settings, await this.#offeredModels()) }
  }

  #offeredModels(): Promise<ModelChoices> {
    const { host } = this.#options
    this.#models ??= Promise.all([host.config(), host.provider()]).then(([config, { model }]) =>
      modelChoices(config, model),
    )
    // A configuration that is corrected counts with the next session.
    this.#models.catch(() => {
      this.#models = undefined
    })
    return this.#models
  }

  /** What the editor gets of a session behind the answer that names it. */
  #tellLater(sessionId: string, editor: Editor, { notes }: Session): void {
    const { words } = this.#options
    const said = notes.map((note) => thought(`${words.line(note, 1_000)}\n\n`))
    const offered = { sessionUpdate: 'available_commands_update' as const, availableCommands: commands }
    setImmediate(() => {
      if (this.#sessions.get(sessionId) === undefined) return
      void editor.tell([offered, ...said]).catch(() => undefined)
    })
  }
}
