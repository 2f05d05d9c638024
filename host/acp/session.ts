/** A conversation of an editor: each prompt is a run that continues the last one, on the directory of the session. */

import { randomUUID } from 'node:crypto'
import type { ContentBlock, StopReason } from '@agentclientprotocol/sdk'
import { CaissonError } from '#specs/errors.ts'
import type { RunState } from '../index.ts'
import { Buffers } from './buffers.ts'
import type { Editor } from './editor.ts'
import { Foreground } from './foreground.ts'
import { startFork, untilWords } from './forks.ts'
import { forkMessageIdOf, messageIdOf, type PastSession, titleOf } from './history.ts'
import { type PromptPlace, readPrompt, type Task } from './prompt.ts'
import { notPossibleNow } from './refusals.ts'
import { apply, type ReviewParts, reviewChanges } from './review.ts'
import { noTask, refuseImages, runOptionsOf, type SessionParts } from './session-parts.ts'
import { firstSettings, type SessionSettings } from './settings.ts'
import { lostWords, Turn } from './turn.ts'
import { message, RunUpdates, thought } from './updates.ts'

/** Says that a prompt is part of the session, by the ID of its message. */
type Take = (messageId: string) => Promise<void>

export class Session {
  settings: SessionSettings = firstSettings
  readonly #parts: SessionParts
  /** The last run, which the next prompt continues. */
  #last: string | undefined
  /** A forked session until its first prompt: its run waits for that. */
  #waiting: PastSession | undefined
  #told: Promise<unknown> = Promise.resolve()
  #turn: Turn | undefined
  /** From a prompt until its run is there, and at its end. */
  #isBusy = false
  #isCancelled = false
  /** Nobody is at the session any more, or another object has it. */
  #isLeft = false
  readonly #closings = new WeakMap<Turn, Promise<StopReason>>()
  #reviewing = new AbortController()
  readonly #buffers: Buffers
  readonly #foreground: Foreground

  constructor(parts: SessionParts) {
    this.#parts = parts
    this.#foreground = new Foreground(parts.editor)
    this.#buffers = new Buffers(parts.editor, parts.directory)
  }

  /** What the person has to know of the session. */
  get notes(): readonly string[] {
    return this.#parts.mcp.notes
  }

  get editor(): Editor {
    return this.#parts.editor
  }

  /** Its first prompt begins no run before. @param told never rejects */
  holdUntil(told: Promise<unknown>): void {
    this.#told = told
  }

  /** Whether there is a run of it. */
  get hasRun(): boolean {
    return this.#last !== undefined
  }

  /** Resolves when nothing of it is under way. */
  get idle(): Promise<void> {
    return this.#foreground.over
  }

  /** Continues a session of the journals; follows its last run where that is not over. */
  async restore(past: PastSession): Promise<void> {
    const { settings, last, updates, next, isUnstarted } = past
    this.settings = settings
    this.#last = last.id
    if (this.#isLeft) return
    if (isUnstarted) {
      this.#waiting = past
      return
    }
    if (last.state.end !== null) return
    if (last.status === 'interrupted')
      return await this.#parts.editor.tell([message(lostWords(last.id, 'it was interrupted'))])
    const turn = this.#follow(last.id, updates, next)
    for (const pending of Object.values(updates.state.pendingApprovals)) turn.questions.ask(pending)
    await this.#foreground.during(async () => await this.#endOf(turn))
  }

  /** @param onTaken gets the ID of the message once the prompt is part of the session; what fails before refuses it */
  async prompt(
    blocks: readonly ContentBlock[],
    onTaken: (messageId: string) => void = () => undefined,
  ): Promise<StopReason> {
    let isTaken = false
    const take = async (messageId: string): Promise<void> => {
      isTaken = true
      await this.#parts.editor.insert(messageId, blocks)
      onTaken(messageId)
    }
    return await this.#foreground.during(
      async () => await this.#carryOut(blocks, take),
      () => isTaken,
    )
  }

  async #carryOut(blocks: readonly ContentBlock[], take: Take): Promise<StopReason> {
    const turn = this.#turn
    if (turn !== undefined) return await this.#speakTo(turn, blocks, take)
    if (this.#isBusy)
      throw notPossibleNow('the session is still at work on a prompt; stop it, or wait for its end')
    this.#isBusy = true
    this.#isCancelled = false
    try {
      await this.#told
      const [only] = blocks
      const command = blocks.length === 1 && only?.type === 'text' ? only.text.trim() : ''
      if (command === '/apply' || command === '/undo') return await this.#command(command, take)
      if (command === '/run') return await this.#run(noTask, take, this.#lastRun())
      const waiting = this.#waiting
      if (waiting !== undefined) return await this.#startFork(waiting, blocks, take)
      const { readFile } = this.#parts.editor
      const known = this.#buffers.known
      return await this.#run(await readPrompt(blocks, { ...this.#promptPlace, readFile, known }), take)
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
    this.#foreground.leave()
    this.#reviewing.abort()
    this.#turn?.leave()
  }

  /** @param planFrom the run whose plan is carried out */
  async #run(task: Task, take: Take, planFrom?: string): Promise<StopReason> {
    const { directory, editor, words, runs } = this.#parts
    await this.#note(task.notes)
    this.#buffers.know(task.mentioned)
    const isFirst = this.#last === undefined
    if (isFirst)
      await editor.tell([{ sessionUpdate: 'session_info_update', title: titleOf(task.prompt, words) }])
    const runId = await runs.start(
      runOptionsOf(this.#parts, this.settings, task, { last: this.#last, planFrom }),
    )
    this.#last = runId
    await take(messageIdOf(runId))
    const turn = this.#follow(runId, new RunUpdates({ runId, directory, words }), 1)
    if (this.#isCancelled) await turn.cancel()
    return await this.#endOf(turn)
  }

  /** The first prompt of a forked session. */
  async #startFork(past: PastSession, blocks: readonly ContentBlock[], take: Take): Promise<StopReason> {
    const { host, directory, words, runs, by } = this.#parts
    const said = await this.#wordsOf(blocks, 'The first prompt of a fork gives the agent its words alone.')
    const { mode } = this.settings
    const runId = await startFork(host, runs, past, { words: said, by, mode })
    this.#waiting = undefined
    this.#last = runId
    await take(forkMessageIdOf(runId))
    const updates = new RunUpdates({ runId, directory, words })
    // What the editor has of the fork by now.
    const own = await untilWords(host, runId, updates)
    const turn = this.#follow(runId, updates, own)
    if (this.#isCancelled) await turn.cancel()
    return await this.#endOf(turn)
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
  async #speakTo(turn: Turn, blocks: readonly ContentBlock[], take: Take): Promise<StopReason> {
    const prompt = await this.#wordsOf(
      blocks,
      'While a run is at work, it gets the words of a message alone.',
    )
    const isAnswer = await turn.questions.answerInWords(prompt)
    if (!isAnswer) {
      await turn.steer(prompt).catch((error: unknown) => {
        throw notPossibleNow(`the agent does not take a message now: ${CaissonError.from(error).message}`)
      })
    }
    await take(randomUUID())
    return await this.#endOf(turn)
  }

  /** What of a prompt reaches a run that has its files. @param why said where there is more */
  async #wordsOf(blocks: readonly ContentBlock[], why: string): Promise<string> {
    const { prompt, images, context, contents, notes } = await readPrompt(blocks, this.#promptPlace)
    await this.#note(notes)
    if (images.length + Object.keys({ ...context, ...contents }).length > 0)
      await this.#parts.editor.tell([thought(`${why}\n\n`)])
    return prompt
  }

  async #command(command: '/apply' | '/undo', take: Take): Promise<StopReason> {
    const { host, editor, by } = this.#parts
    const last = this.#lastRun()
    await take(randomUUID())
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
    if (this.#waiting !== undefined)
      throw notPossibleNow('the fork has no turn of its own yet; send a prompt first')
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
      refuseImages: () => refuseImages(host, this.settings),
    }
  }

  async #note(notes: readonly string[]): Promise<void> {
    const { editor, words } = this.#parts
    if (notes.length > 0) await editor.tell(notes.map((note) => message(`${words.line(note, 2_000)}\n\n`)))
  }
}
