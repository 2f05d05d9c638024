// What can go wrong when a VM is started or run, as one error class with closed codes and phases.
// It holds the tails of QEMU's stderr and of the guest's console as fields, never in the message: the console
// is written by the guest, and only the host's one display function may put such text on a screen.
import { CaissonError, type ErrorCode } from '#specs/errors.ts'

/** Where in the start of a VM something happened, in the order in which the phases follow each other. */
export type VmPhase = 'prepare' | 'spawn' | 'qmp' | 'kernel' | 'init' | 'load' | 'fresh' | 'agent'

export type VmErrorKind =
  /** An option is out of its range; nothing was started. */
  | 'bad_option'
  /** No QEMU for the guest's architecture on this machine. */
  | 'no_qemu'
  /** A file of the image, or the workspace disk, is missing or cannot be read. */
  | 'image_unreadable'
  | 'memory_short'
  | 'disk_short'
  /** The state folder has another owner, is writable by others, or is no folder. */
  | 'state_folder_unsafe'
  /** The accelerator that was asked for does not work here. */
  | 'accelerator_unavailable'
  /** Confinement was required and cannot be had. */
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
  /** What happened instead; free of guest text. */
  readonly seen: string
  /** What the user can do next. */
  readonly remedy: string
  /** The last of QEMU's stderr; absent means QEMU never ran. */
  readonly stderrTail?: string
  /** The last of the guest's console: hostile text. Absent means QEMU never ran. */
  readonly consoleTail?: string
  /** The signal that ended QEMU, where one did. */
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
  /** What failed in particular; `code` is the common one. */
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
