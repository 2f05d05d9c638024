/** A run with a real journal, queue and control socket, and the command line beside it; only the run's work is scripted. */

import { onTestFinished } from 'vitest'
import type { HostEvent } from '#specs/protocol/event.ts'
import type { UserQuestion } from '#specs/protocol/question.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { ApprovalQueue } from '../../approvals/queue.ts'
import { agentsAtWork, requireDone, requireRevoked } from '../../control/run-handle.ts'
import { ControlServer } from '../../control/server.ts'
import { Host } from '../../host.ts'
import { RunRecord } from '../../journal/run-record.ts'
import { AgentControl } from '../../runs/guest/agent-control.ts'
import { prepareFolders } from '../../state/folders.ts'
import { commandsIn } from './run-command.ts'
import { runId } from './run-values.ts'

/** What every approval of the run has. */
export const someCall = { runId, agentPath: 'root', stepId: 's', callId: 'c', preview: '' }

export interface RunAtWork {
  /** Finds the run's folders. */
  readonly env: Readonly<Record<string, string | undefined>>
  readonly queue: ApprovalQueue
  readonly record: RunRecord
  /** Resolves when somebody watches. */
  readonly watched: Promise<void>
  /** Asks as the agent does. */
  ask(question: UserQuestion, approvalId: string, signal?: AbortSignal): Promise<unknown>
  /** The run's last event: watchers learn of the end. */
  end(event: HostEvent): Promise<void>
  /** Its process is gone, without an end of the run. */
  die(): Promise<void>
  /** Runs a command in this process. */
  caisson(...argv: string[]): Promise<{ code: number; stdout: string; stderr: string }>
}

/** Call it from within a test. */
export async function runAtWork(): Promise<RunAtWork> {
  const env = { CAISSON_HOME: await temporaryFolder('approvals'), PATH: process.env.PATH }
  const { runs, folders } = new Host({ env })
  await prepareFolders(folders)
  const record = await RunRecord.open(await runs.create(runId))
  const queue = new ApprovalQueue({
    mode: 'ask',
    rules: [],
    interactive: true,
    record: (event) => record.host(event),
  })
  const ended = Promise.withResolvers<RunState>()
  const watched = Promise.withResolvers<void>()
  const control = new AgentControl({
    note: (event) => record.host(event),
    agentsAtWork: () => agentsAtWork(record.state),
    onHold: () => undefined,
  })
  const taken = async () => ({ ok: true, value: undefined }) as const
  control.begin({ isReachable: true, steer: taken, cancelAgent: taken, setTaskPaused: taken })
  const server = await ControlServer.open(record.paths.control, {
    run: {
      watch: () => {
        watched.resolve()
        return record.feed.watch()
      },
      answer: async (approvalId, answer, { by = '', via = 'library' } = {}) =>
        await queue.answerDurably(approvalId, answer, { name: by, via }, ended.promise),
      revokeAnswer: async (approvalId, { by = '' } = {}) =>
        requireRevoked(runId, approvalId, await queue.revoke(approvalId, by)),
      hasPendingApproval: (approvalId) => queue.pending.includes(approvalId),
      fork: () => Promise.reject(new Error('there is no disk here')),
      cancel: async () => undefined,
      cancelAgent: (agentPath, { by = '', reason = '' } = {}) =>
        requireDone(control.cancelAgent(agentPath, reason, by)),
      steer: (text, { by = '', to } = {}) => requireDone(control.steer(text, by, to)),
      pause: ({ by = '' } = {}) => requireDone(control.setPaused(true, by)),
      resume: ({ by = '' } = {}) => requireDone(control.setPaused(false, by)),
      ended: ended.promise,
      journalHead: '',
    },
  })
  let closed: Promise<void> | undefined
  const close = () => (closed ??= closeAll())
  const closeAll = async () => {
    // Watchers learn of the end by the feed.
    await record[Symbol.asyncDispose]()
    ended.resolve(record.state)
    await server[Symbol.asyncDispose]()
  }
  onTestFinished(close)
  const ask = (question: UserQuestion, approvalId: string, signal?: AbortSignal) =>
    queue.ask({ ...someCall, approvalId, tool: 'ask_user', arguments: '{}', question }, signal)
  const caisson = commandsIn(env)
  const end = async (event: HostEvent) => {
    await record.host(event)
    await close()
  }
  return { env, queue, record, watched: watched.promise, ask, end, die: close, caisson }
}
