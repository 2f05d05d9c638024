/** A conversation of an editor: each prompt is a run that continues the last one, on the directory of the session. */

import type { ContentBlock, StopReason } from '@agentclientprotocol/sdk'
import { CaissonError } from '#specs/errors.ts'
import { capabilitiesOf } from '#specs/node/provider-quirks/capabilities.ts'
import type { CleanText } from '#specs/protocol/shown-text.ts'
import type { Host, RunOptions, RunState } from '../index.ts'
import { Buffers } from './buffers.ts'
import type { Editor } from './editor.ts'
import { metadataKeys, type PastSession, titleOf } from './history.ts'
import type { TakenServers } from './mcp-servers.ts'
import { type PromptPlace, readPrompt, type Task } from './prompt.ts'
import { notPossibleNow } from './refusals.ts'
import { apply, type ReviewParts, reviewChanges } from './review.ts'
import { firstSettings, type SessionSettings } from './settings.ts'
import { type Carrier, lostWords, Turn } from './turn.ts'
import { message, RunUpdates, thought } from './updates.ts'

/** How a session starts runs outside of this process. */
export interface RunStarter extends Carrier {
  /** @returns the id of the run. @throws {CaissonError} where there is none */
  readonly start: (options: RunOptions) => Promise<string>
}

export interface SessionParts {
  readonly id: string
  /** The workspace: an absolute path. */
  readonly directory: string
  readonly host: Host
  readonly runs: RunStarter
  readonly editor: Editor
  readonly words: CleanText
  readonly by: string
  readonly log: (line: string) => void
  /** Options of every run, such as the size of its VM. */
  readonly options: Pick<RunOptions, 'vm'>
  /** MCP servers of the editor. */
  readonly mcp: TakenServers
}

/** What a person types for the session itself. */
export const commands = [
  { name: 'apply', description: 'Apply the changes of the last turn, except flagged paths and conflicts' },
  { name: 'run', description: 'Carry out the plan of the last turn' },
  { name: 'undo', description: 'Undo what was applied of the last turn' },
]

const noTask: Task = { prompt: '', images: [], context: {}, contents: {}, mentioned: [], notes: [] }

export class Session {
  settings: SessionSettings = firstSettings
  readonly #parts: SessionParts
  /** The last run, which the next prompt continues. */
  #last: string | undefined
  #turn: Turn | undefined
  /** From a prompt until its run is there, and at its end. */
  #isBusy = false
  #isCancelled = false
  /** Nobody is at the session any more, or another object has it. */
  #isLeft = false
  readonly #closings = new WeakMap<Turn, Promise<StopReason>>()
  #reviewing = new AbortController()
  readonly #buffers: Buffers

  constructor(parts: SessionParts) {
    this.#parts = parts
    this.#buffers = new Buffers(parts.editor, parts.directory)
  }

  /** What the person has to know of the session. */
  get notes(): readonly string[] {
    return this.#parts.mcp.notes
  }

  /** Continues a session of the journals; follows its last run where that is not over. */
  async restore({ settings, last, updates, next }: PastSession): Promise<void> {
    this.settings = settings
    this.#last = last.id
    if (this.#isLeft) return
    if (last.state.end !== null) return
    if (last.status === 'interrupted')
      return await this.#parts.editor.tell([message(lostWords(last.id, 'it was interrupted'))])
    const turn = this.#follow(last.id, updates, next)
    for (const pending of Object.values(updates.state.pendingApprovals)) turn.questions.ask(pending)
    this.#inBackground(turn)
  }

  async prompt(blocks: readonly ContentBlock[]): Promise<StopReason> {
    const turn = this.#turn
    if (turn !== undefined) return await this.#speakTo(turn, blocks)
    if (this.#isBusy)
      throw notPossibleNow('the session is still at work on a prompt; stop it, or wait for its end')
    this.#isBusy = true
    this.#isCancelled = false
    try {
      const [only] = blocks
      const command = blocks.length === 1 && only?.type === 'text' ? only.text.trim() : ''
      if (command === '/apply' || command === '/undo') return await this.#command(command)
      if (command === '/run') return await this.#run(noTask, this.#lastRun())
      const { readFile } = this.#parts.editor
      const known = this.#buffers.known
      return await this.#run(await readPrompt(blocks, { ...this.#promptPlace, readFile, known }))
    } finally {
      this.#isBusy = false
    }
  }

  async cancel(): Promise<void> {
    this.#isCancelled = true
    this.#reviewing.abort()
    await this.#turn?.cancel()
  }

  /** Its run continues without a watcher. */
  leave(): void {
    this.#isLeft = true
    this.#reviewing.abort()
    this.#turn?.leave()
  }

  /** @param planFrom the run whose plan is carried out */
  async #run(task: Task, planFrom?: string): Promise<StopReason> {
    const { directory, editor, words, runs } = this.#parts
    await this.#note(task.notes)
    this.#buffers.know(task.mentioned)
    const isFirst = this.#last === undefined
    if (isFirst)
      await editor.tell([{ sessionUpdate: 'session_info_update', title: titleOf(task.prompt, words) }])
    const runId = await runs.start(this.#optionsOf(task, planFrom))
    this.#last = runId
    const turn = this.#follow(runId, new RunUpdates({ runId, directory, words }), 1)
    if (this.#isCancelled) await turn.cancel()
    return await this.#endOf(turn)
  }

  #optionsOf({ prompt, images, context, contents }: Task, from: string | undefined): RunOptions {
    const { id, directory, editor, options, mcp } = this.#parts
    const { mode, model, effort } = this.settings
    return {
      ...{ prompt, images, context, workspace: directory },
      ...(Object.keys(contents).length === 0 ? {} : { files: { contents } }),
      ...(model === undefined ? {} : { model }),
      ...(effort === undefined ? {} : { effort }),
      ...(this.#last === undefined ? {} : { continue: this.#last }),
      ...(from !== undefined ? { plan: { from } } : mode === 'plan' ? { plan: { only: true } } : {}),
      metadata: { [metadataKeys.session]: id, [metadataKeys.mode]: mode },
      approvals: { interactive: true },
      ...(Object.keys(mcp.servers).length === 0 ? {} : { extensions: { mcpServers: mcp.servers } }),
      vm: { ...options.vm, keep: true },
      onNotes: (notes) =>
        void editor.tell(notes.map((note) => thought(`${note}\n\n`))).catch(() => undefined),
    }
  }

  #follow(runId: string, updates: RunUpdates, from: number): Turn {
    const { host, runs, editor, words, by, log } = this.#parts
    const turn = new Turn({ host, runId, editor, updates, words, by, log, carrier: runs, from })
    this.#turn = turn
    this.#reviewing = new AbortController()
    // It was left while the run started.
    if (this.#isLeft) this.leave()
    return turn
  }

  /** Until the run and the review of its changes are over, or a question waits for the next prompt. */
  async #endOf(turn: Turn): Promise<StopReason> {
    const asked = turn.questions.asksInWords.then(() => 'asked' as const)
    const state = await Promise.race([turn.ended, asked])
    if (state === 'asked') {
      this.#inBackground(turn)
      return 'end_turn'
    }
    return await this.#close(turn, state)
  }

  /** Once, for whoever waits for the end of the turn. */
  #close(turn: Turn, state: RunState | undefined): Promise<StopReason> {
    const closing = this.#closings.get(turn) ?? this.#review(turn, state)
    this.#closings.set(turn, closing)
    return closing
  }

  async #review(turn: Turn, state: RunState | undefined): Promise<StopReason> {
    try {
      const isCancelled = turn.isCancelled || state?.end?.outcome === 'cancelled'
      if (state !== undefined && !isCancelled) {
        const isAsked = this.settings.mode !== 'apply'
        await reviewChanges(this.#reviewParts, { runId: turn.runId, state, isAsked }, this.#reviewing.signal)
      }
      return isCancelled || this.#reviewing.signal.aborted ? 'cancelled' : 'end_turn'
    } finally {
      if (this.#turn === turn) this.#turn = undefined
    }
  }

  /** A run that no prompt waits for. */
  #inBackground(turn: Turn): void {
    const { log } = this.#parts
    void turn.ended
      .then((state) => this.#close(turn, state))
      .catch((error: unknown) => log(`the end of ${turn.runId}: ${CaissonError.from(error).message}`))
  }

  /** A prompt while a run is at work: the answer to a question, or a message to the agent. */
  async #speakTo(turn: Turn, blocks: readonly ContentBlock[]): Promise<StopReason> {
    const { editor } = this.#parts
    const { prompt, images, context, contents, notes } = await readPrompt(blocks, this.#promptPlace)
    await this.#note(notes)
    if (images.length + Object.keys({ ...context, ...contents }).length > 0)
      await editor.tell([thought('While a run is at work, it gets the words of a message alone.\n\n')])
    const isAnswer = await turn.questions.answerInWords(prompt)
    if (!isAnswer) {
      await turn.steer(prompt).catch((error: unknown) => {
        throw notPossibleNow(`the agent does not take a message now: ${CaissonError.from(error).message}`)
      })
    }
    return await this.#endOf(turn)
  }

  async #command(command: '/apply' | '/undo'): Promise<StopReason> {
    const { host, editor, by } = this.#parts
    const last = this.#lastRun()
    if (command === '/apply') {
      await apply(this.#reviewParts, await host.changes(last), 'all')
      return 'end_turn'
    }
    const { restored, conflicts } = await host.undo(last, { by })
    const left = conflicts.length === 0 ? '' : ` ${conflicts.length} changed since and stay.`
    await editor.tell([
      message(`Restored ${restored.length} ${restored.length === 1 ? 'path' : 'paths'}.${left}\n\n`),
    ])
    return 'end_turn'
  }

  #lastRun(): string {
    if (this.#last === undefined) throw notPossibleNow('the session has no turn yet; send a prompt first')
    return this.#last
  }

  get #reviewParts(): ReviewParts {
    const { host, editor, words, by } = this.#parts
    return { host, editor, words, by, buffers: this.#buffers }
  }

  get #promptPlace(): PromptPlace {
    const { host, directory: workspace } = this.#parts
    return {
      workspace,
      inspect: (paths, contents) => host.inspectPaths(paths, { workspace, contents }),
      refuseImages: () => this.#refuseImages(),
    }
  }

  /** Why the model of the next run gets no images, as far as is known. */
  async #refuseImages(): Promise<string | undefined> {
    const { model } = this.settings
    const choice = await this.#parts.host.provider(model === undefined ? {} : { model })
    if (choice.baseUrl === null) return 'the offline model does not see images; choose another model'
    const { maxImages = capabilitiesOf(choice.model).maxImages } = choice
    return maxImages > 0
      ? undefined
      : `as far as is known, ${choice.model} does not see images; choose another model, or set models."${choice.model}".maxImages in the configuration`
  }

  async #note(notes: readonly string[]): Promise<void> {
    const { editor, words } = this.#parts
    if (notes.length > 0) await editor.tell(notes.map((note) => message(`${words.line(note, 2_000)}\n\n`)))
  }
}
