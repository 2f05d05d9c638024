/** What a control socket can serve: a VM, a run. The objects behind it know nothing of sockets. */

import type { Duplex } from 'node:stream'
import type { FramedStream } from '#specs/node/framed-stream.ts'
import type { ShellOptions } from '#specs/protocol/methods.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import type { AccessResult } from './guest-access.ts'
import type { VmInfo } from './messages.ts'
import type { RunHandle } from './run-handle.ts'

export interface VmService {
  describe(): VmInfo
  readonly console: {
    text(): string
    /** Calls `listener` with all bytes from now on; the result ends that. */
    onData(listener: (chunk: Buffer) => void): () => void
  }
  /** Begins to end the VM: in good order with what it works on, or at once. */
  stop(now: boolean): void
  /** Lets its processors stand still, or go on; the reason when that cannot be. */
  setPaused(paused: boolean): Promise<string | undefined>
  readonly access: {
    openShell(options: ShellOptions, signal: AbortSignal): Promise<AccessResult<FramedStream>>
    openForward(port: number, signal: AbortSignal): Promise<AccessResult<Duplex>>
  }
}

export interface RunService
  extends Pick<RunHandle, 'watch' | 'answer' | 'cancel' | 'steer' | 'pause' | 'resume'> {
  hasPendingApproval(approvalId: string): boolean
  readonly ended: Promise<RunState>
  readonly journalHead: string
}

export interface ControlServices {
  readonly vm?: VmService
  readonly run?: RunService
}
