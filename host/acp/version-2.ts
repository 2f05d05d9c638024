/**
 * Version 2 of the protocol, which is a draft, on the SDK: declares its methods and translates between them and the sessions.
 * What is said and asked goes through {@link Version2Editor}.
 */

import { setTimeout as sleep } from 'node:timers/promises'
import type { ContentBlock, McpServer } from '@agentclientprotocol/sdk'
import {
  type AgentApp,
  type AgentContext,
  agent,
  assertSupportedMcpServers,
  type ClientCapabilities,
  type InitializeRequest,
  type InitializeResponse,
  type McpServer as McpServer2,
  methods,
  type NewSessionRequest,
  PROTOCOL_VERSION,
} from '@agentclientprotocol/sdk/experimental/v2'
import type { ForkSessionRequest } from '@agentclientprotocol/sdk/experimental/v2/unstable'
import { answering, invalidParams, parsedBy } from './refusals.ts'
import { FrameSchema } from './schema.ts'
import type { Session } from './session.ts'
import type { Opened, Peer } from './sessions.ts'
import type { VersionParts } from './version-1.ts'
import { Version2Editor } from './version-2-editor.ts'
import { commandsOf, optionsOf } from './version-2-forms.ts'

const mcp = { http: {} }
/** How long a session that is closed may take to end its run, before and after its VM is ended at once. */
const closeMs = { calm: 10_000, atOnce: 20_000 }

export class Version2 {
  readonly #parts: VersionParts
  #capabilities: ClientCapabilities = {}
  #by = 'an ACP client'

  constructor(parts: VersionParts) {
    this.#parts = parts
  }

  app(): AgentApp {
    const { sessions, log } = this.#parts
    const app = agent({ name: 'caisson' })
    app.onRequest(
      methods.agent.initialize,
      answering(({ params }) => this.#initialize(params), log),
    )
    this.#handleSessions(app)
    if (this.#parts.hasFork) this.#handleForks(app)
    return app
      .onRequest(
        methods.agent.session.setConfigOption,
        answering(async ({ params }) => {
          if (params.type !== 'id')
            throw invalidParams('each option has values of the type id; choose one of them')
          const session = await sessions.set(params.sessionId, params.configId, params.value)
          return { configOptions: optionsOf(await sessions.optionsOf(session)) }
        }, log),
      )
      .onRequest(
        methods.agent.session.prompt,
        answering(async ({ params }) => {
          const session = sessions.find(params.sessionId)
          return { messageId: await submit(session, params.prompt as ContentBlock[], log) }
        }, log),
      )
      .onNotification(methods.agent.session.cancel, async ({ params }) => {
        await sessions.get(params.sessionId)?.cancel()
      })
  }

  /** Of the part of version 2 that is not stable. Frames right behind `initialize` come here unchecked. */
  #handleForks(app: AgentApp): void {
    const { sessions, log } = this.#parts
    const schema = new FrameSchema(2, true)
    const parse = (params: unknown) => parsedBy<ForkSessionRequest>(schema, 'session/fork', params)
    app.onRequest(
      'session/fork',
      parse,
      answering(async ({ params, client }: { params: ForkSessionRequest; client: AgentContext }) => {
        const given = openedOf(params as NewSessionRequest)
        const { sessionId, session } = await sessions.fork(params.sessionId, given, this.#peerOf(client))
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
          const { sessionId, session } = await sessions.begin(openedOf(params), this.#peerOf(client))
          return { sessionId, ...(await this.#opened(sessionId, session)) }
        }, log),
      )
      .onRequest(
        methods.agent.session.resume,
        answering(async ({ params, client }) => {
          const { sessionId, replayFrom } = params
          if (replayFrom != null && replayFrom.type !== 'start')
            throw invalidParams('replayFrom: a session is shown from its start, or not at all; choose start')
          const peer = this.#peerOf(client)
          const session = await sessions.restore(sessionId, openedOf(params), peer, replayFrom != null)
          return await this.#opened(sessionId, session)
        }, log),
      )
      .onRequest(
        methods.agent.session.list,
        answering(async ({ params: { cwd = null } }) => ({ sessions: await sessions.list(cwd) }), log),
      )
      .onRequest(
        methods.agent.session.close,
        answering(async ({ params: { sessionId } }) => {
          const session = sessions.get(sessionId)
          if (session !== undefined) await end(session)
          sessions.drop(sessionId)
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

  #initialize({ capabilities, info }: InitializeRequest): InitializeResponse {
    const { words, version, hasFork } = this.#parts
    this.#capabilities = capabilities ?? {}
    this.#by = `${words.line(info.title ?? info.name, 100)} (ACP)`
    return {
      protocolVersion: PROTOCOL_VERSION,
      info: { name: 'caisson', title: 'Caisson', version },
      capabilities: {
        session: {
          prompt: { image: {}, embeddedContext: {} },
          mcp,
          delete: {},
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
      editorOf: (sessionId) => new Version2Editor({ client, sessionId, capabilities, log }),
    }
  }

  /** The state of a session, for the answer that opens it. */
  async #opened(sessionId: string, session: Session) {
    const { sessions } = this.#parts
    const configOptions = optionsOf(await sessions.optionsOf(session))
    sessions.tellNotesLater(sessionId, session)
    return { configOptions, availableCommands: commandsOf() }
  }
}

/** Resolves once the prompt is part of the session; how its work ends, its state says. @returns the ID of the message */
async function submit(
  session: Session,
  prompt: readonly ContentBlock[],
  log: (line: string) => void,
): Promise<string> {
  const taken = Promise.withResolvers<string>()
  let isTaken = false
  session
    .prompt(prompt, (messageId) => {
      isTaken = true
      taken.resolve(messageId)
    })
    .catch((error: unknown) => {
      if (isTaken) log(`a turn failed: ${error instanceof Error ? error.message : String(error)}`)
      else taken.reject(error)
    })
  return await taken.promise
}

/** Its editor gets the end of its work before it is closed. */
async function end(session: Session): Promise<void> {
  for (const ms of [closeMs.calm, closeMs.atOnce]) {
    await session.cancel()
    const timer = new AbortController()
    const late = sleep(ms, 'late' as const, { signal: timer.signal }).catch(() => 'late' as const)
    const state = await Promise.race([session.idle, late])
    timer.abort()
    if (state !== 'late') return
  }
}

/** @throws {RequestError} for a kind of MCP server that was not advertised */
function openedOf({ cwd, mcpServers = [] }: Pick<NewSessionRequest, 'cwd' | 'mcpServers'>): Opened {
  assertSupportedMcpServers(mcpServers, mcp)
  return { cwd, mcpServers: mcpServers.map(serverOf) }
}

/** Those over HTTP alone are left. */
function serverOf(server: McpServer2): McpServer {
  return { headers: [], ...server } as McpServer
}
