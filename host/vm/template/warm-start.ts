// Starts a VM in the fastest way that works: from a template with mapped memory, from a template that is loaded, or by
// a boot. A failed way is remembered and the next one is tried.

import { setTimeout as sleep } from 'node:timers/promises'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { resumeVm, startVm, type Vm } from '../vm.ts'
import { prepareMachine, type StartVmOptions } from '../vm-command.ts'
import { VmError } from '../vm-error.ts'
import {
  blankWorkspace,
  isSameTemplate,
  markUsed,
  openTemplate,
  startFrom,
  type Template,
} from './template.ts'
import { type Obtained, type TemplateDeps, TemplateStore } from './template-store.ts'

export interface WarmStartDeps extends TemplateDeps {
  /** `cold` boots; `auto` (the default) copies a template. */
  readonly start?: 'auto' | 'cold'
}

export interface WarmVm {
  readonly vm: Vm
  /** Whether other VMs start from the same state: the agent then needs a new identity. */
  readonly cloned: boolean
  /** Why it was booted although a template was requested. */
  readonly coldReason?: string
}

/** The guest does not respond although its VM runs; `open` throws it to try the next way. */
export class GuestUnresponsiveError extends CaissonError {
  override readonly name = 'GuestUnresponsiveError'

  constructor(message: string, options?: ErrorOptions) {
    super('agent_lost', message, options)
  }
}

/** It does not respond because its QEMU ended. */
class GuestGoneError extends GuestUnresponsiveError {}

/** Streams of a QEMU that ended close before its exit is known. */
const EXIT_NOTICE_MS = 100

/**
 * A killed VM says nothing about the template, so it is used once more. Then it is made again, in case it is damaged;
 * another failure means that the kind does not work here.
 */
const ATTEMPTS = 3

/**
 * Calls `open` with the VM while it is reseeded, to wake its agent; `open` must not use it further. When `open` throws
 * a {@link GuestUnresponsiveError}, or the reseed fails, the VM is ended and the next way is tried.
 * @throws other errors of `open`, and VmError when even a boot fails
 */
export async function restoreFromTemplate<T>(
  options: StartVmOptions,
  deps: WarmStartDeps,
  open: (warm: WarmVm) => Promise<T>,
): Promise<T> {
  if (!wantsTemplate(options, deps)) return await boot(options, open)
  const store = new TemplateStore(options.folders.cache)
  const attempts = new Attempts()
  for (;;) {
    const obtained = await obtain(store, options, deps)
    if (!obtained.ok) return await boot(options, open, obtained.reason)
    const { template } = obtained
    try {
      return await resume(options, template, open)
    } catch (error) {
      options.signal?.throwIfAborted()
      if (!isTemplateFault(error) && !(await isGone(template))) throw error
      const count = attempts.count(template, error)
      if (count > 1) await store.reject(template, errorMessage(error), count >= ATTEMPTS)
    }
  }
}

/**
 * Makes the template that {@link restoreFromTemplate} would make, so that the user can be informed first.
 * @returns why there is none, or undefined.
 * @throws VmError when even a boot would fail
 */
export async function prepareTemplate(
  options: StartVmOptions,
  deps: WarmStartDeps,
): Promise<string | undefined> {
  if (!wantsTemplate(options, deps)) return undefined
  const obtained = await obtain(new TemplateStore(options.folders.cache), options, deps)
  return obtained.ok ? undefined : obtained.reason
}

function wantsTemplate({ image }: StartVmOptions, { start }: WarmStartDeps): boolean {
  return start !== 'cold' && !('disk' in image)
}

async function obtain(store: TemplateStore, options: StartVmOptions, deps: WarmStartDeps): Promise<Obtained> {
  return await store.obtain(options, await prepareMachine(options, false), deps)
}

/** Removed or replaced by another process since it was opened. */
async function isGone(template: Template): Promise<boolean> {
  const present = await openTemplate(template.directory).catch(() => undefined)
  return present === undefined || !isSameTemplate(present, template)
}

async function boot<T>(
  options: StartVmOptions,
  open: (warm: WarmVm) => Promise<T>,
  coldReason?: string,
): Promise<T> {
  const vm = await startVm(options)
  return await hand(vm, open, { cloned: false, ...(coldReason === undefined ? {} : { coldReason }) })
}

async function resume<T>(
  options: StartVmOptions,
  template: Template,
  open: (warm: WarmVm) => Promise<T>,
): Promise<T> {
  const workspaceDisk = options.workspaceDisk ?? blankWorkspace(template)
  const vm = await resumeVm({ ...options, workspaceDisk }, startFrom(template))
  void markUsed(template)
  return await hand(vm, open, { cloned: true })
}

async function hand<T>(vm: Vm, open: (warm: WarmVm) => Promise<T>, how: Omit<WarmVm, 'vm'>): Promise<T> {
  try {
    const [value] = await Promise.all([open({ vm, ...how }), vm.fresh])
    return value
  } catch (error) {
    const isGone = await Promise.race([vm.exited.then(() => true), sleep(EXIT_NOTICE_MS, false)])
    await vm.stop()
    throw isGone && error instanceof GuestUnresponsiveError ? new GuestGoneError(error.message) : error
  }
}

/** Failures of each kind of template in this start. */
class Attempts {
  readonly #counts = new Map<string, number>()

  /** A guest that timed out is not retried from the same state. */
  count({ record }: Template, error: unknown): number {
    const isUnfit = error instanceof GuestUnresponsiveError && !(error instanceof GuestGoneError)
    const isLate = isUnfit || kindOf(error) === 'deadline_exceeded'
    const count = Math.max((this.#counts.get(record.kind) ?? 0) + 1, isLate ? 2 : 1)
    this.#counts.set(record.kind, count)
    return count
  }
}

function isTemplateFault(error: unknown): boolean {
  const kinds = ['state_unusable', 'qemu_failed', 'qmp_failed', 'guest_failed', 'deadline_exceeded']
  return error instanceof GuestUnresponsiveError || kinds.includes(kindOf(error) ?? '')
}

function kindOf(error: unknown): string | undefined {
  return error instanceof VmError ? error.kind : undefined
}
