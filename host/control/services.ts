/** Interfaces of what a control socket serves: a VM, a run. The implementations know nothing of sockets. */

import type { Duplex } from 'node:stream'
import type { FramedStream } from '#specs/node/framed-stream.ts'
import type { ShellOptions } from '#specs/protocol/methods.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import type { AccessResult } from './guest-access.ts'
import type { VmDetails, VmInfo } from './messages.ts'
import type { RunForks, RunHandle } from './run-handle.ts'

export interface VmService {
  describe(): VmInfo
  /** The same with what it uses of the host now. */
  inspect(): Promise<VmDetails>
  readonly console: {
    text(): string
    /** Calls `listener` with all later bytes; the returned function removes it. */
    onData(listener: (chunk: Buffer) => void): () => void
  }
  /** Ends the VM: after cancelling its work, or immediately. */
  stop(now: boolean): void
  /** Pauses or resumes its processors; returns why this is not possible. */
  setPaused(paused: boolean): Promise<string | undefined>
  readonly access: {
    openShell(options: ShellOptions, signal: AbortSignal): Promise<AccessResult<FramedStream>>
    openForward(port: number, signal: AbortSignal): Promise<AccessResult<Duplex>>
  }
}

export interface RunService
  extends Pick<
      RunHandle,
      'watch' | 'answer' | 'revokeAnswer' | 'cancel' | 'cancelAgent' | 'steer' | 'pause' | 'resume'
    >,
    RunForks {
  hasPendingApproval(approvalId: string): boolean
  readonly ended: Promise<RunState>
  readonly journalHead: string
}

export interface ControlServices {
  readonly vm?: VmService
  readonly run?: RunService
}
