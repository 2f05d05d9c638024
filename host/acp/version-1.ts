/** Version 1 of the protocol, on the SDK: declares its methods and translates between them and the sessions. */
import {
  type AgentApp,
  type AgentContext,
  agent,
  type ClientCapabilities,
  type InitializeRequest,
  type InitializeResponse,
  methods,
  PROTOCOL_VERSION,
} from '@agentclientprotocol/sdk'
import type { ForkSessionRequest } from '@agentclientprotocol/sdk/unstable'
import type { CleanText } from '#specs/protocol/shown-text.ts'
import { answering, notPossibleNow, parsedBy } from './refusals.ts'
import { FrameSchema } from './schema.ts'
import type { Session } from './session.ts'
import { commands } from './session-parts.ts'
import type { Opened, Peer, Sessions } from './sessions.ts'
import { modeState } from './settings.ts'
import { Version1Editor } from './version-1-editor.ts'

export interface VersionParts {
  readonly sessions: Sessions
  readonly words: CleanText
  readonly log: (line: string) => void
  /** Of Caisson. */
  readonly version: string
  /** Whether sessions can be forked, which is not stable. */
  readonly hasFork: boolean
}

/** Servers of kinds that version 1 does not have are refused by their name. */
type Forked = ForkSessionRequest & Opened

export class Version1 {
  readonly #parts: VersionParts
  #capabilities: ClientCapabilities = {}
  #by = 'an ACP client'

  constructor(parts: VersionParts) {
    this.#parts = parts
  }

  app(): AgentApp {
    const { sessions, log } = this.#parts
    const app = agent({ name: 'caisson' })
    // First: the SDK asks handlers in turn, and refuses requests that came right behind this one until it is answered.
    app.onRequest(
      methods.agent.initialize,
      answering(({ params }) => this.#initialize(params), log),
    )
    this.#handleSessions(app)
    if (this.#parts.hasFork) this.#handleForks(app)
    return app
      .onRequest(
        methods.agent.authenticate,
        answering(() => {
          throw notPossibleNow('this agent needs no authentication; start a session')
        }, log),
      )
      .onRequest(
        methods.agent.session.setMode,
        answering(async ({ params }) => {
          await sessions.set(params.sessionId, 'mode', params.modeId)
          return {}
        }, log),
      )
      .onRequest(
        methods.agent.session.setConfigOption,
        answering(async ({ params }) => {
          const session = await sessions.set(params.sessionId, params.configId, params.value)
          return { configOptions: await sessions.optionsOf(session) }
        }, log),
      )
      .onRequest(
        methods.agent.session.prompt,
        answering(
          async ({ params }) => ({
            stopReason: await sessions.find(params.sessionId).prompt(params.prompt),
          }),
          log,
        ),
      )
      .onNotification(methods.agent.session.cancel, async ({ params }) => {
        await sessions.get(params.sessionId)?.cancel()
      })
  }

  /** Of the part of version 1 that is not stable. */
  #handleForks(app: AgentApp): void {
    const { sessions, log } = this.#parts
    const schema = new FrameSchema(1, true)
    const parse = (params: unknown) => parsedBy<ForkSessionRequest>(schema, 'session/fork', params)
    app.onRequest(
      'session/fork',
      parse,
      answering(async ({ params, client }: { params: ForkSessionRequest; client: AgentContext }) => {
        const { sessionId, session } = await sessions.fork(
          params.sessionId,
          params as Forked,
          this.#peerOf(client),
        )
        return { sessionId, ...(await this.#opened(sessionId, session)) }
      }, log),
    )
  }

  /** How sessions begin and end. */
  #handleSessions(app: AgentApp): void {
    const { sessions, log } = this.#parts
    app
      .onRequest(
        methods.agent.session.new,
        answering(async ({ params, client }) => {
          const { sessionId, session } = await sessions.begin(params, this.#peerOf(client))
          return { sessionId, ...(await this.#opened(sessionId, session)) }
        }, log),
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
        answering(async ({ params: { cwd = null } }) => ({ sessions: await sessions.list(cwd) }), log),
      )
      .onRequest(
        methods.agent.session.close,
        answering(async ({ params }) => {
          await sessions.find(params.sessionId).cancel()
          sessions.drop(params.sessionId)
          return {}
        }, log),
      )
      .onRequest(
        methods.agent.session.delete,
        answering(async ({ params }) => {
          await sessions.delete(params.sessionId)
          return {}
        }, log),
      )
  }

  #initialize({ clientCapabilities, clientInfo }: InitializeRequest): InitializeResponse {
    const { words, version, hasFork } = this.#parts
    this.#capabilities = clientCapabilities ?? {}
    const name = clientInfo?.title ?? clientInfo?.name ?? ''
    if (name !== '') this.#by = `${words.line(name, 100)} (ACP)`
    return {
      protocolVersion: PROTOCOL_VERSION,
      agentInfo: { name: 'caisson', title: 'Caisson', version },
      agentCapabilities: {
        loadSession: true,
        promptCapabilities: { image: true, audio: false, embeddedContext: true },
        mcpCapabilities: { http: true, sse: false },
        sessionCapabilities: {
          list: {},
          delete: {},
          resume: {},
          close: {},
          ...(hasFork ? { fork: {} } : {}),
        },
      },
      authMethods: [],
    }
  }

  #peerOf(client: AgentContext): Peer {
    const { log } = this.#parts
    const capabilities = this.#capabilities
    return {
      by: this.#by,
      editorOf: (sessionId) => new Version1Editor({ client, sessionId, capabilities, log }),
    }
  }

  async #restore(given: Opened & { readonly sessionId: string }, client: AgentContext, isShown: boolean) {
    const { sessionId } = given
    const session = await this.#parts.sessions.restore(sessionId, given, this.#peerOf(client), isShown)
    return await this.#opened(sessionId, session)
  }

  /** The state of a session, for the answer that opens it. */
  async #opened(sessionId: string, session: Session) {
    const { sessions } = this.#parts
    const state = { modes: modeState(session.settings), configOptions: await sessions.optionsOf(session) }
    const offered = { sessionUpdate: 'available_commands_update' as const, availableCommands: commands }
    setImmediate(() => {
      if (sessions.get(sessionId) === session) void session.editor.tell([offered]).catch(() => undefined)
    })
    sessions.tellNotesLater(sessionId, session)
    return state
  }
}
