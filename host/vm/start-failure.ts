// Builds the errors of a failed start: what was expected, what was seen, and what to do. Also holds the two limits of a
// start: its deadline and the caller's signal.

import { errorMessage } from '#specs/errors.ts'
import { AwakeTimer } from '#specs/node/awake-timer.ts'
import type { BootOutcome, BootWatch } from './boot-watch.ts'
import { SavedStateError } from './hibernation/saved-state.ts'
import type { QemuExit, QemuProcess } from './qemu/qemu-process.ts'
import { QmpError } from './qemu/qmp.ts'
import { PortClosedError, ReseedError } from './reseed.ts'
import { VmError, type VmErrorDetails, type VmPhase } from './vm-error.ts'

const DEADLINE = Symbol('deadline')
const CANCELLED = Symbol('cancelled')

/** Ends a wait when the deadline passes or the caller aborts. */
export class StartLimits {
  readonly #ended = Promise.withResolvers<never>()
  readonly #timer: AwakeTimer
  readonly #signal: AbortSignal | undefined
  readonly #cancel = () => this.#ended.reject(CANCELLED)

  constructor(deadlineMs: number, signal: AbortSignal | undefined) {
    this.#ended.promise.catch(() => {})
    this.#timer = new AwakeTimer(deadlineMs, () => this.#ended.reject(DEADLINE))
    this.#signal = signal
    if (signal?.aborted) this.#cancel()
    signal?.addEventListener('abort', this.#cancel, { once: true })
  }

  race<T>(promise: Promise<T>): Promise<T> {
    return Promise.race([promise, this.#ended.promise])
  }

  end(): void {
    this.#timer.cancel()
    this.#signal?.removeEventListener('abort', this.#cancel)
  }
}

/** Last output of QEMU and of the guest; the latter is untrusted. */
export function tails(qemu: QemuProcess) {
  return { stderrTail: qemu.stderrTail(), consoleTail: qemu.console.text() }
}

/**
 * QEMU or its launcher ended before the monitor answered, perhaps because this machine has changed. A process that was
 * killed says nothing about the machine.
 */
export function isLaunchFailure(error: unknown): boolean {
  return (
    error instanceof VmError &&
    error.kind === 'qemu_failed' &&
    error.signal !== 'SIGKILL' &&
    error.signal !== 'SIGTERM' &&
    (error.phase === 'spawn' || error.phase === 'qmp')
  )
}

/** Error of a start that the caller aborted. */
export function describeCancelled(phase: VmPhase): VmError {
  return new VmError(cancelled(phase))
}

/** Error of a process that the system could not start. */
export function describeSpawnFailure(cause: unknown): VmError {
  return new VmError({
    kind: 'qemu_failed',
    phase: 'spawn',
    expected: 'to start QEMU',
    seen: errorMessage(cause),
    remedy: 'Check the limits of processes and open files (ulimit -u, ulimit -n).',
    cause,
  })
}

/** Error of a guest that ended or reported a failure before it was ready. */
export function describeOutcome(
  outcome: Exclude<BootOutcome, { kind: 'ready' }>,
  phase: VmPhase,
  qemu: QemuProcess,
): VmError {
  return new VmError({ ...outcomeDetails(outcome, phase), ...tails(qemu) })
}

interface StartFailure {
  readonly phase: VmPhase
  readonly watch: BootWatch
  readonly qemu: QemuProcess
  readonly exit: QemuExit
  readonly deadlineMs: number
}

/** Builds the error of a failed start from its cause. */
export function describeFailure(error: unknown, failure: StartFailure): VmError {
  if (error instanceof VmError) return error
  const phase = failure.phase === 'kernel' ? failure.watch.phase() : failure.phase
  const context = { ...tails(failure.qemu), cause: error }
  if (error === CANCELLED) return new VmError({ ...cancelled(phase), ...context })
  if (error === DEADLINE) {
    return new VmError({
      kind: 'deadline_exceeded',
      phase,
      expected: `the guest to be ready within ${failure.deadlineMs / 1000} s`,
      seen:
        failure.qemu.console.totalBytes === 0 ? 'no output from the guest' : 'output, but no ready message',
      remedy:
        'Read the console to see how far the guest booted; if another accelerator is in use, try tcg (option vm.accelerator).',
      ...context,
    })
  }
  const isOfGuest = error instanceof ReseedError && !(error instanceof PortClosedError)
  if (isOfGuest && failure.exit.code === null) {
    return new VmError({
      kind: 'guest_failed',
      phase,
      expected: 'the guest to accept random bytes and the time from the host',
      seen: error.message,
      remedy: 'Read the console; if the image is older than this version, run caisson image build.',
      ...context,
    })
  }
  if (error instanceof SavedStateError) {
    return new VmError({
      kind: 'state_unusable',
      phase,
      expected: 'QEMU to load a saved state',
      seen: error.message,
      remedy: 'Start the VM without the saved state, which is damaged or from another QEMU version.',
      ...context,
    })
  }
  if (error instanceof QmpError && error.kind !== 'closed') {
    return new VmError({
      kind: 'qmp_failed',
      phase,
      expected: "an answer of QEMU's monitor",
      seen: error.message,
      remedy: 'Run caisson doctor; this QEMU may be too old or damaged.',
      ...context,
    })
  }
  return new VmError({ ...outcomeDetails({ kind: 'exited', exit: failure.exit }, phase), ...context })
}

function cancelled(phase: VmPhase): VmErrorDetails {
  const remedy = 'To continue, start it again.'
  return { kind: 'cancelled', phase, expected: 'the VM to start', seen: 'a request to cancel', remedy }
}

function outcomeDetails(outcome: Exclude<BootOutcome, { kind: 'ready' }>, phase: VmPhase): VmErrorDetails {
  if (outcome.kind === 'guest-error') {
    const where = outcome.guestPhase === undefined ? '' : ` in its phase ${outcome.guestPhase}`
    return {
      kind: 'guest_failed',
      phase: 'init',
      expected: 'init to become ready',
      seen: `an error reported by the guest${where}`,
      remedy: 'Read the console; to check the image, run caisson image verify.',
    }
  }
  const { exit } = outcome
  // If the monitor was connected and the exit is clean, the guest ended: reset, power-off, or panic.
  const byGuest = (phase === 'kernel' || phase === 'init') && exit.code === 0
  const how = exit.spawnError?.message ?? exit.signal ?? `exit status ${exit.code}`
  return {
    kind: byGuest ? 'guest_failed' : 'qemu_failed',
    phase,
    expected: byGuest ? 'the guest to boot' : 'QEMU to keep running',
    seen: byGuest ? 'a guest that ended or panicked' : `its end (${how})`,
    ...(exit.signal === null ? {} : { signal: exit.signal }),
    remedy: byGuest
      ? 'Read the console; to check the image, run caisson image verify.'
      : 'Read its stderr and run caisson doctor; if the accelerator is broken, use tcg (option vm.accelerator).',
  }
}
