/**
 * The agent of the Agent Client Protocol, version 1: an editor starts this process and speaks to it on its standard streams.
 * Runs are carried out elsewhere, so they outlive the editor; nothing is allowed because the editor is gone.
 */

import { randomBytes } from 'node:crypto'
import { stat } from 'node:fs/promises'
import path from 'node:path'
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

/** Of one connection. */
const sessionsMax = 256

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

class AcpAgent {
  readonly #options: AcpOptions
  readonly #sessions = new Map<string, Session>()
  /** Ids of the last sessions that were closed here. */
  readonly #closed = new Set<string>()
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
            stopReason: await this.#find(params.sessionId).prompt(params.prompt),
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
          await this.#find(params.sessionId).cancel()
          this.#drop(params.sessionId)
          return {}
        }, log),
      )
      .onRequest(
        methods.agent.session.delete,
        answering(async ({ params }) => {
          await deleteSession(host, params.sessionId)
          this.#drop(params.sessionId)
          return {}
        }, log),
      )
  }

  leave(): void {
    for (const session of this.#sessions.values()) session.leave()
    this.#sessions.clear()
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
        mcpCapabilities: { http: false, sse: false },
        sessionCapabilities: { list: {}, delete: {}, resume: {}, close: {} },
      },
      authMethods: [],
    }
  }

  async #begin({ cwd }: NewSessionRequest, client: AgentContext) {
    const session = await this.#create(`session-${randomBytes(10).toString('hex')}`, cwd, client)
    const state = await this.#stateOf(session.session)
    this.#offerCommands(session.id, client)
    return { sessionId: session.id, ...state }
  }

  async #create(
    id: string,
    cwd: string,
    client: AgentContext,
  ): Promise<{ readonly id: string; readonly session: Session; readonly editor: Editor }> {
    const directory = await checkDirectory(cwd)
    if (this.#sessions.size >= sessionsMax && !this.#sessions.has(id))
      throw notPossibleNow(`at most ${sessionsMax} sessions may be open; close one first`)
    const { host, runs, words, log, options } = this.#options
    const editor = new Editor({ client, sessionId: id, capabilities: this.#capabilities, log })
    const session = new Session({ id, directory, host, runs, editor, words, by: this.#by, log, options })
    this.#sessions.get(id)?.leave()
    this.#sessions.set(id, session)
    return { id, session, editor }
  }

  async #restore(
    { sessionId, cwd }: { readonly sessionId: string; readonly cwd: string },
    client: AgentContext,
    isShown: boolean,
  ) {
    const { host, words } = this.#options
    const runs = await findSession(host, sessionId, await checkDirectory(cwd))
    const { session, editor } = await this.#create(sessionId, cwd, client)
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
    this.#offerCommands(sessionId, client)
    return state
  }

  #find(sessionId: string): Session {
    const found = this.#sessions.get(sessionId)
    if (found === undefined) throw noSession(sessionId, this.#closed.has(sessionId) ? 'closed' : 'unknown')
    return found
  }

  #drop(sessionId: string): void {
    this.#sessions.get(sessionId)?.leave()
    if (!this.#sessions.delete(sessionId)) return
    const [oldest] = this.#closed
    if (this.#closed.size >= sessionsMax && oldest !== undefined) this.#closed.delete(oldest)
    this.#closed.add(sessionId)
  }

  async #set(sessionId: string, option: string, value: unknown, client: AgentContext): Promise<Session> {
    const session = this.#find(sessionId)
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

  #offerCommands(sessionId: string, client: AgentContext): void {
    const update = { sessionUpdate: 'available_commands_update' as const, availableCommands: commands }
    setImmediate(
      () => void client.notify(methods.client.session.update, { sessionId, update }).catch(() => undefined),
    )
  }
}

/** @throws {RequestError} for a directory that no session can have */
async function checkDirectory(cwd: string): Promise<string> {
  const directory = requireAbsolute(cwd)
  const found = await stat(directory).catch(() => undefined)
  if (found?.isDirectory() === true) return directory
  const seen = found === undefined ? 'cannot be found' : 'is no directory'
  throw invalidParams(`cwd: ${JSON.stringify(directory)} ${seen}; give the directory that the agent works on`)
}

function requireAbsolute(cwd: string): string {
  if (path.isAbsolute(cwd) && !cwd.includes('\0')) return path.resolve(cwd)
  throw invalidParams(`cwd: expected an absolute path, got ${JSON.stringify(cwd.slice(0, 200))}`)
}
