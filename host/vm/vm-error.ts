// The errors of starting and running a VM: one class with closed codes and phases. Holds the last output of QEMU and
// the guest's console as fields, never in the message: the console is untrusted, and only the host's display function
// may print it.
import { CaissonError, type ErrorCode } from '#specs/errors.ts'

/** Phases of a VM's start, in order. */
export type VmPhase = 'prepare' | 'spawn' | 'qmp' | 'kernel' | 'init' | 'load' | 'fresh' | 'agent'

export type VmErrorKind =
  /** An option is out of range; nothing was started. */
  | 'bad_option'
  /** No QEMU for the guest's architecture on this machine. */
  | 'no_qemu'
  /** A file of the image, or the workspace disk, is missing or cannot be read. */
  | 'image_unreadable'
  | 'memory_short'
  | 'disk_short'
  /** The state folder has another owner, is writable by others, or is not a folder. */
  | 'state_folder_unsafe'
  /** The requested accelerator does not work here. */
  | 'accelerator_unavailable'
  /** The required confinement is not available. */
  | 'confinement_unavailable'
  /** QEMU ended before the guest was ready. */
  | 'qemu_failed'
  /** QEMU's monitor broke its protocol or did not answer. */
  | 'qmp_failed'
  /** The guest reported an error or ended before it was ready. */
  | 'guest_failed'
  /** A saved state could not be loaded. */
  | 'state_unusable'
  /** The pool had no VM in time. */
  | 'pool_full'
  | 'deadline_exceeded'
  | 'cancelled'

export interface VmErrorDetails {
  readonly kind: VmErrorKind
  readonly phase: VmPhase
  /** What should have happened. */
  readonly expected: string
  /** What happened instead; without guest text. */
  readonly seen: string
  /** What the user can do next. */
  readonly remedy: string
  /** Last output of QEMU on stderr. Absent: QEMU never ran. */
  readonly stderrTail?: string
  /** Last output of the guest's console; untrusted. Absent: QEMU never ran. */
  readonly consoleTail?: string
  /** The signal that ended QEMU, if any. */
  readonly signal?: string
  readonly cause?: unknown
}

const commonCodes: Readonly<Partial<Record<VmErrorKind, ErrorCode>>> = {
  bad_option: 'invalid_options',
  disk_short: 'no_space',
  pool_full: 'limit_reached',
  cancelled: 'cancelled',
}

export class VmError extends CaissonError {
  override readonly name = 'VmError'
  /** The specific failure; `code` is the general one. */
  readonly kind: VmErrorKind
  readonly phase: VmPhase
  readonly expected: string
  readonly seen: string
  declare readonly remedy: string
  readonly stderrTail: string
  readonly consoleTail: string
  readonly signal: string | undefined

  constructor(details: VmErrorDetails) {
    super(
      commonCodes[details.kind] ?? 'vm_failed',
      `VM failed in phase ${details.phase} (${details.kind}): expected ${details.expected}; saw ${details.seen}.`,
      { remedy: details.remedy, cause: details.cause },
    )
    this.kind = details.kind
    this.phase = details.phase
    this.expected = details.expected
    this.seen = details.seen
    this.stderrTail = details.stderrTail ?? ''
    this.consoleTail = details.consoleTail ?? ''
    this.signal = details.signal
  }
}
