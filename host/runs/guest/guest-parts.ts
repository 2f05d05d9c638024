/** What a guest needs of its run: for the run's own VM the run's parts, for a sub-agent's VM narrower ones. */
import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2'
import type { ApprovalQueue } from '../../approvals/queue.ts'
import type { Budget } from '../../gateway/budget.ts'
import type { RunHooks } from '../../hooks/run-hooks.ts'
import type { Feed } from '../../journal/run-feed.ts'
import type { RunRecord } from '../../journal/run-record.ts'
import type { EarlierAnswers } from '../../recording/replay.ts'
import type { HostCallResults } from '../../tools/calls.ts'
import type { CheckpointDisk } from '../../vm/checkpoints/checkpoint-disk.ts'
import type { DiskSpaceWait } from '../disk-space-wait.ts'
import type { AgentEventValidator } from './agent-event-validator.ts'

export interface GuestRecord
  extends Pick<RunRecord, 'paths' | 'state' | 'host' | 'agent' | 'delta' | 'openRecorder'> {
  readonly feed: Pick<Feed, 'isWatched'>
}
export type GuestApprovals = Pick<ApprovalQueue, 'ask' | 'networkAnswers'>
export type GuestClaims = Pick<
  AgentEventValidator,
  'check' | 'isAtWork' | 'waitUntilAtWork' | 'noteHook' | 'noteRefusal'
>

/** Parts of the run that serve and limit its guest. */
export interface GuestParts {
  readonly record: GuestRecord
  readonly approvals: GuestApprovals
  readonly claims: GuestClaims
  readonly hooks: RunHooks
  /** Waits for disk space. */
  readonly diskSpace: DiskSpaceWait
  readonly hostCallResults: HostCallResults
  /**
   * The model's server takes requests again only after a long time. True: the run leaves its VM, to continue then, and its
   * agent is not to learn of it.
   * @param message until when, and why
   */
  readonly onModelLimit: (message: string) => boolean
  /** Time of the run that counts toward its limit. */
  readonly elapsedMs: () => number
  /** Absent: the run has no checkpoints. */
  readonly checkpointDisk?: CheckpointDisk
  /** For an agent that continues the run of another. */
  readonly earlier?: EarlierAnswers
  /** Absent: the VM is the run's own. */
  readonly subAgent?: SubAgentParts
}

/** Of the VM of a sub-agent. */
export interface SubAgentParts {
  /** The budget that its own is a part of. */
  readonly within: Budget
  /** Before the ids of its model requests. */
  readonly idPrefix: string
  /** Takes the stream with its changes. @returns whether it was that */
  handleStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): boolean
}
