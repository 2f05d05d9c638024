/**
 * Sessions as the journals know them: a session is its runs, which carry its id in their metadata. There is no other record,
 * so a session without a run is forgotten with its process.
 */

import { realpath } from 'node:fs/promises'
import type { SessionInfo, SessionUpdate } from '@agentclientprotocol/sdk'
import type { JournalEvent } from '#specs/protocol/event.ts'
import type { CleanText } from '#specs/protocol/shown-text.ts'
import type { Host, RunSummary } from '../index.ts'
import { noSession, notPossibleNow } from './refusals.ts'
import { firstSettings, Mode, type SessionSettings } from './settings.ts'
import { RunUpdates } from './updates.ts'

/** Keys of the metadata of a run. */
export const metadataKeys = { session: 'acp.session', mode: 'acp.mode' } as const

const listedMax = 1_000
const titleMaxChars = 100
const sessionIdForm = /^session-[0-9a-f]{20}$/

/** Of runs that a key of the service started: metadata that no request can set. */
const ownerKey = 'caisson.owner'

/** Oldest first. */
export async function runsOf(host: Host, sessionId: string): Promise<readonly RunSummary[]> {
  if (!sessionIdForm.test(sessionId)) return []
  const runs = await host.runs.select({ metadata: { [metadataKeys.session]: sessionId } })
  return runs
    .filter(isOfUser)
    .sort((one, other) => one.startedAt - other.startedAt || beganAt(one) - beganAt(other))
}

/** Keys can give their runs the metadata of a session; the next prompt would continue in such a VM. */
function isOfUser({ metadata }: RunSummary): boolean {
  return metadata === undefined || !Object.hasOwn(metadata, ownerKey)
}

/** Newest first. @param cwd absolute path of the workspace; null for all */
export async function listSessions(host: Host, cwd: string | null, words: CleanText): Promise<SessionInfo[]> {
  const runs = await host.runs.select(cwd === null ? {} : { workspace: await realOf(cwd) })
  const sessions = new Map<string, { first: RunSummary; last: RunSummary }>()
  for (const run of runs.filter(isOfUser)) {
    const id = run.metadata?.[metadataKeys.session]
    if (id === undefined || !sessionIdForm.test(id)) continue
    const known = sessions.get(id)
    const first = known === undefined || run.startedAt < known.first.startedAt ? run : known.first
    const last = known === undefined || run.startedAt > known.last.startedAt ? run : known.last
    sessions.set(id, { first, last })
  }
  return [...sessions]
    .sort(([, one], [, other]) => beganAt(other.last) - beganAt(one.last))
    .slice(0, listedMax)
    .map(([sessionId, { first, last }]) => ({
      ...{ sessionId, cwd: first.workspace, title: titleOf(first.prompt, words) },
      updatedAt: new Date(beganAt(last)).toISOString(),
    }))
}

/** A fork has the times of the run that it is of. */
const beganAt = ({ startedAt, forkedAt = startedAt }: RunSummary): number => forkedAt

export function titleOf(prompt: string, words: CleanText): string {
  const [line = ''] = prompt.trim().split('\n')
  return words.line(line, titleMaxChars)
}

/** Removes all runs of a session. @throws {RequestError} while one of them is at work */
export async function deleteSession(host: Host, sessionId: string): Promise<void> {
  const runs = await runsOf(host, sessionId)
  const [atWork] = runs.filter(({ isLive }) => isLive)
  if (atWork !== undefined) throw notPossibleNow(`${atWork.id} of this session is at work; cancel it first`)
  for (const { id } of runs) await host.runs.remove(id)
}

/** Of the message that a run began with. */
export const messageIdOf = (runId: string): string => `${runId}/prompt`

/** Of the words that a fork began with, as its journal has it. */
export const forkMessageIdOf = (runId: string): string => `m-${runId.slice('run-'.length)}`

/** Whether a process has it, or it sleeps until an answer. */
export const isAtWork = ({ state, status }: RunSummary): boolean =>
  state.end === null && status !== 'interrupted'

export interface PastSession {
  readonly settings: SessionSettings
  readonly last: RunSummary
  /** Of the last run, as far as its journal goes. */
  readonly updates: RunUpdates
  /** `seq` of its next event. */
  readonly next: number
  /** Whether the last run is a fork that nobody has started. */
  readonly isUnstarted: boolean
}

/** The runs of a session of this directory. @throws {RequestError} for one that is not known, or is of another */
export async function findSession(
  host: Host,
  sessionId: string,
  directory: string,
): Promise<readonly RunSummary[]> {
  const runs = await runsOf(host, sessionId)
  const last = runs.at(-1)
  if (last === undefined) {
    const damaged = (await host.runs.list()).filter(({ status }) => status === 'damaged')
    throw noSession(
      sessionId,
      'unknown',
      damaged.map(({ id }) => id),
    )
  }
  if (last.workspace !== (await realOf(directory))) throw noSession(sessionId, 'other directory')
  return [...(await earlierOf(host, runs)), ...runs]
}

/** What a forked session has of the other one: the runs that its first one continues. */
async function earlierOf(host: Host, [first]: readonly RunSummary[]): Promise<RunSummary[]> {
  const earlier: RunSummary[] = []
  let next = first?.forkedFrom === undefined ? undefined : first.continues
  while (next !== undefined && earlier.length < listedMax) {
    const run: RunSummary | undefined = await host.runs.summary(next).catch(() => undefined)
    if (run === undefined || !isOfUser(run) || run.workspace !== first?.workspace) break
    earlier.unshift(run)
    next = run.continues
  }
  return earlier
}

/** As runs have their workspace. */
async function realOf(directory: string): Promise<string> {
  return await realpath(directory).catch(() => directory)
}

/** Tells a session again, from the journals of its runs. @returns undefined without runs */
export async function tellAgain(
  host: Host,
  runs: readonly RunSummary[],
  words: CleanText,
  tell: (updates: readonly SessionUpdate[]) => Promise<void>,
): Promise<PastSession | undefined> {
  let past: PastSession | undefined
  for (const summary of runs) {
    const { id: runId, workspace: directory } = summary
    const updates = new RunUpdates({ runId, directory, words })
    const start = new ForkStart()
    let next = 1
    for await (const event of host.runs.stream(runId)) {
      next = event.seq + 1
      start.next(event)
      await tell([...promptOf(runId, event), ...updates.of(event)])
    }
    past = { settings: settingsOf(summary), last: summary, updates, next, isUnstarted: start.isAhead }
  }
  return past
}

/** What the person said with this event: a prompt, or the words that a fork began with. */
function promptOf(runId: string, { event }: JournalEvent): SessionUpdate[] {
  const said = (messageId: string, text: string): SessionUpdate[] => [
    { sessionUpdate: 'user_message_chunk', messageId, content: { type: 'text', text } },
  ]
  if (event.type === 'run-start') return said(messageIdOf(runId), event.prompt)
  const isOfFork = event.type === 'steer-request' && event.messageId === forkMessageIdOf(runId)
  return isOfFork ? said(event.messageId, event.text) : []
}

/** Finds whether a fork has more than what it was made with: the lines of the other run, and what was said to it. */
class ForkStart {
  #checkpointId: string | null | undefined
  #isOwn = false
  #hasBegun = false

  get isAhead(): boolean {
    return this.#checkpointId !== undefined && !this.#hasBegun
  }

  next({ event }: JournalEvent): void {
    if (event.type === 'run-start') this.#checkpointId = event.forkedFrom?.checkpointId
    else if (this.#isOwn) this.#hasBegun ||= event.type !== 'steer-request'
    else if (this.#checkpointId === null) this.#isOwn = event.type === 'workspace-ready'
    else this.#isOwn = event.type === 'checkpoint' && event.checkpointId === this.#checkpointId
  }
}

function settingsOf({ metadata }: RunSummary): SessionSettings {
  const mode = Mode.safeParse(metadata?.[metadataKeys.mode])
  return mode.success ? { mode: mode.data } : firstSettings
}
