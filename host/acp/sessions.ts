/** The sessions of one connection, by whichever version of the protocol: how they begin, come back, change and end. */
import { randomBytes } from 'node:crypto'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { McpServer, SessionInfo } from '@agentclientprotocol/sdk'
import type { CleanText } from '#specs/protocol/shown-text.ts'
import type { Host, RunOptions } from '../index.ts'
import type { Editor } from './editor.ts'
import { forkLast } from './forks.ts'
import { deleteSession, findSession, isAtWork, listSessions, metadataKeys, tellAgain } from './history.ts'
import { takeMcpServers } from './mcp-servers.ts'
import { OpenSessions } from './open-sessions.ts'
import { invalidParams, noSession, notPossibleNow } from './refusals.ts'
import { Session } from './session.ts'
import type { RunStarter } from './session-parts.ts'
import { configOptions, describeRefused, type ModelChoices, modelChoices, withOption } from './settings.ts'
import { thought } from './updates.ts'
import { checkDirectory, requireAbsolute } from './workspace-files.ts'

export interface SessionsOptions {
  readonly host: Host
  readonly runs: RunStarter
  readonly words: CleanText
  readonly log: (line: string) => void
  readonly options: Pick<RunOptions, 'vm'>
}

/** What a session is opened with. */
export interface Opened {
  readonly cwd: string
  readonly mcpServers?: readonly McpServer[]
}

/** Who has the sessions: an editor, as it speaks to this connection. */
export interface Peer {
  /** For the journal. */
  readonly by: string
  editorOf(sessionId: string): Editor
}

export class Sessions {
  readonly #options: SessionsOptions
  readonly #open = new OpenSessions()
  #models: Promise<ModelChoices> | undefined

  constructor(options: SessionsOptions) {
    this.#options = options
  }

  /** @throws {RequestError} for one that is not open */
  find(sessionId: string): Session {
    return this.#open.find(sessionId)
  }

  get(sessionId: string): Session | undefined {
    return this.#open.get(sessionId)
  }

  async begin(given: Opened, peer: Peer): Promise<{ readonly sessionId: string; readonly session: Session }> {
    const sessionId = newSessionId()
    return { sessionId, session: await this.#create(sessionId, given, peer) }
  }

  /** Opens a session of the journals. @param isShown whether the editor gets what was said and done in it */
  async restore(sessionId: string, given: Opened, peer: Peer, isShown: boolean): Promise<Session> {
    const { host, words, log } = this.#options
    const runs = await findSession(host, sessionId, await checkDirectory(given.cwd))
    const session = await this.#create(sessionId, given, peer)
    const { editor } = session
    const past = await tellAgain(host, runs, words, async (updates) => {
      if (isShown) await editor.tell(updates)
    })
    if (past === undefined) throw noSession(sessionId, 'unknown')
    session.settings = past.settings
    await editor.show({ state: isAtWork(past.last) ? 'running' : 'idle' })
    // Behind the answer, so that the editor knows the session by then.
    setImmediate(() => void session.restore(past).catch((error: unknown) => log(String(error))))
    return session
  }

  /**
   * Makes a session that continues another one from its last moment: the fork of its last run, which waits for a prompt. The
   * other one stays as it is. The editor gets the history behind the answer, since it knows the session by then.
   */
  async fork(sessionId: string, given: Opened, peer: Peer): Promise<{ sessionId: string; session: Session }> {
    const { host, words, log } = this.#options
    const directory = await checkDirectory(given.cwd)
    if (this.get(sessionId)?.hasRun === false)
      throw notPossibleNow('the session has no turn yet, so there is nothing to fork; send a prompt first')
    const last = (await findSession(host, sessionId, directory)).at(-1)
    if (last === undefined) throw noSession(sessionId, 'unknown')
    const forkId = newSessionId()
    this.#open.requirePlace(forkId)
    const runId = await forkLast(host, last.id, {
      ...{ by: peer.by, metadata: { [metadataKeys.session]: forkId } },
    })
    const session = await this.#create(forkId, given, peer).catch(async (error: unknown) => {
      await host.runs.remove(runId).catch(() => undefined)
      throw error
    })
    const runs = await findSession(host, forkId, directory)
    const past = await tellAgain(host, runs, words, async () => undefined)
    if (past === undefined) throw noSession(forkId, 'unknown')
    session.settings = past.settings
    await session.restore(past)
    const { editor } = session
    const told = nextTurn().then(() =>
      tellAgain(host, runs, words, async (updates) => await editor.tell(updates)),
    )
    session.holdUntil(told.catch((error: unknown) => log(String(error))))
    return { sessionId: forkId, session }
  }

  /** Newest first. @param cwd null for all directories */
  async list(cwd: string | null): Promise<SessionInfo[]> {
    const { host, words } = this.#options
    return await listSessions(host, cwd === null ? null : requireAbsolute(cwd), words)
  }

  drop(sessionId: string): void {
    this.#open.drop(sessionId)
  }

  /** Removes its runs. @throws {RequestError} while one of them is at work */
  async delete(sessionId: string): Promise<void> {
    await deleteSession(this.#options.host, sessionId)
    this.#open.drop(sessionId)
  }

  /** @throws {RequestError} for an option or value that was not offered */
  async set(sessionId: string, option: string, value: unknown): Promise<Session> {
    const session = this.find(sessionId)
    const models = await this.#offeredModels()
    const settings = withOption(session.settings, models, option, value)
    if (settings === undefined) throw invalidParams(describeRefused(session.settings, models, option, value))
    session.settings = settings
    if (option === 'mode')
      await session.editor.tell([{ sessionUpdate: 'current_mode_update', currentModeId: settings.mode }])
    await session.editor.tell([
      { sessionUpdate: 'config_option_update', configOptions: configOptions(settings, models) },
    ])
    return session
  }

  async optionsOf({ settings }: Session) {
    return configOptions(settings, await this.#offeredModels())
  }

  /** What the editor gets of a session behind the answer that names it. */
  tellNotesLater(sessionId: string, session: Session): void {
    const { words } = this.#options
    const said = session.notes.map((note) => thought(`${words.line(note, 1_000)}\n\n`))
    setImmediate(() => {
      if (this.get(sessionId) === session) void session.editor.tell(said).catch(() => undefined)
    })
  }

  /** The runs continue without a watcher. */
  leave(): void {
    this.#open.leave()
  }

  async #create(sessionId: string, { cwd, mcpServers }: Opened, peer: Peer): Promise<Session> {
    const directory = await checkDirectory(cwd)
    this.#open.requirePlace(sessionId)
    const { host, runs, words, log, options } = this.#options
    const configured = Object.keys((await host.config()).mcpServers)
    const mcp = takeMcpServers(mcpServers ?? [], configured)
    const editor = peer.editorOf(sessionId)
    const parts = { directory, host, runs, editor, words, by: peer.by, log, options, mcp }
    const session = new Session({ id: sessionId, ...parts })
    this.#open.add(sessionId, session)
    return session
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
}

const newSessionId = (): string => `session-${randomBytes(10).toString('hex')}`
