// Opens a VM in the fastest way that works: a saved VM, a VM of a pool, a template with mapped memory, a template that
// is loaded, a boot. A way that failed is remembered, and the next one is tried.

import { setTimeout as sleep } from 'node:timers/promises'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { findSavedVm, wakeVm } from './hibernation/hibernate.ts'
import { removeSaved } from './hibernation/saved-vm-lock.ts'
import {
  blankWorkspace,
  isSameTemplate,
  markUsed,
  openTemplate,
  startFrom,
  type Template,
} from './template/template.ts'
import { type Obtained, type TemplateDeps, TemplateStore } from './template/template-store.ts'
import { resumeVm, startVm, type Vm } from './vm.ts'
import { prepareMachine, type StartVmOptions } from './vm-command.ts'
import { VmError } from './vm-error.ts'
import { checkResources } from './vm-options.ts'

interface VmSources extends TemplateDeps {
  /** `cold` boots; `auto` (the default) copies a template. */
  readonly start?: 'auto' | 'cold'
  /** VM that an earlier run saved in `directory`; removed once it is open, or cannot be used. */
  readonly saved?: { readonly runId: string; readonly directory: string }
  /** VM of a pool, which takes the place of a new one. */
  readonly pooled?: StartedVm
}

export interface StartedVm {
  readonly vm: Vm
  readonly origin: VmOrigin
}

interface VmOrigin {
  /** `template`: other VMs start from the same state, so the agent needs a new identity. */
  readonly from: 'saved' | 'template' | 'boot'
  /** Why a faster way that was requested did not work. */
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
 * Calls `open` with the VM while it is reseeded, to wake its agent; `open` must not use it further. When `open` throws,
 * the VM is ended. The next way is tried after a {@link GuestUnresponsiveError}, a failed reseed, and any failure of
 * the saved VM.
 * @throws other errors of `open`, and VmError when even a boot fails
 */
export async function openVm<T>(
  options: StartVmOptions,
  { saved, pooled, ...sources }: VmSources,
  open: (started: StartedVm) => Promise<T>,
): Promise<T> {
  let problem: string | undefined
  const offer = (vm: Vm, from: VmOrigin['from'], reason?: string) => {
    const coldReason = problem ?? reason
    return attempt({ vm, origin: { from, ...(coldReason === undefined ? {} : { coldReason }) } }, open)
  }
  if (saved !== undefined) {
    const opened = await openSaved(options, saved, (vm) => offer(vm, 'saved'))
    if (opened.ok) return opened.value
    problem = opened.problem
  }
  if (pooled !== undefined) {
    try {
      return await offer(pooled.vm, pooled.origin.from, pooled.origin.coldReason)
    } catch (error) {
      if (!(error instanceof GuestUnresponsiveError)) throw error
    }
  }
  if (!wantsTemplate(options, sources)) return await offer(await startVm(options), 'boot')
  const store = new TemplateStore(options.folders.cache)
  const failures = new Map<string, number>()
  for (;;) {
    const obtained = await obtain(store, options, sources)
    if (!obtained.ok) return await offer(await startVm(options), 'boot', obtained.reason)
    const { template } = obtained
    try {
      return await offer(await resumeTemplate(options, template), 'template')
    } catch (error) {
      options.signal?.throwIfAborted()
      if (!isTemplateFault(error) && !(await isGone(template))) throw error
      const count = countFailure(failures, template, error)
      if (count > 1) await store.reject(template, errorMessage(error), count >= ATTEMPTS)
    }
  }
}

/**
 * Makes the template that {@link openVm} would make, so that the user can be informed first.
 * @returns why there is none, or undefined.
 * @throws VmError when even a boot would fail
 */
export async function prepareTemplate(
  options: StartVmOptions,
  sources: VmSources,
): Promise<string | undefined> {
  if (!wantsTemplate(options, sources)) return undefined
  const obtained = await obtain(new TemplateStore(options.folders.cache), options, sources)
  return obtained.ok ? undefined : obtained.reason
}

function wantsTemplate({ image }: StartVmOptions, { start }: VmSources): boolean {
  return start !== 'cold' && !('disk' in image)
}

async function obtain(
  store: TemplateStore,
  { checkpointDisk: _, hasOwnCheckpoints: __, ...options }: StartVmOptions,
  deps: TemplateDeps,
): Promise<Obtained> {
  // A template has a disk of its own; the run's is for the copies.
  return await store.obtain(options, await prepareMachine(options, false), deps)
}

/** Removed or replaced by another process since it was opened. */
async function isGone(template: Template): Promise<boolean> {
  const present = await openTemplate(template.directory).catch(() => undefined)
  return present === undefined || !isSameTemplate(present, template)
}

/** Opens the saved VM, or returns why it cannot. @throws VmError when no VM can be started now, and the signal's reason */
async function openSaved<T>(
  options: StartVmOptions,
  { runId, directory }: NonNullable<VmSources['saved']>,
  open: (vm: Vm) => Promise<T>,
): Promise<{ readonly ok: true; readonly value: T } | { readonly ok: false; readonly problem: string }> {
  const remove = () => removeSaved(directory).catch(() => undefined)
  const saved = await findSavedVm(directory)
  if (saved === undefined) {
    await remove()
    return { ok: false, problem: `${runId} kept no VM` }
  }
  try {
    // Same check as for a new VM: this run may also keep its VM at the end.
    await checkResources(saved.record, options.folders.vms)
    const value = await open(await wakeVm(options, saved))
    await remove()
    return { ok: true, value }
  } catch (error) {
    // No new VM can start either: keep the saved VM for a later run.
    const isPassing = ['memory_short', 'disk_short'].includes(kindOf(error) ?? '')
    if ((options.signal?.aborted || isPassing) && (await findSavedVm(directory)) !== undefined) throw error
    // Its disk has changed, or it cannot be restored.
    await remove()
    options.signal?.throwIfAborted()
    const why = errorMessage(error)
    return { ok: false, problem: `the VM that ${runId} kept did not wake: ${why}`.slice(0, 2_000) }
  }
}

async function resumeTemplate(options: StartVmOptions, template: Template): Promise<Vm> {
  const workspaceDisk = options.workspaceDisk ?? blankWorkspace(template)
  const vm = await resumeVm({ ...options, workspaceDisk }, startFrom(template))
  void markUsed(template)
  return vm
}

async function attempt<T>(started: StartedVm, open: (started: StartedVm) => Promise<T>): Promise<T> {
  const { vm } = started
  try {
    const [value] = await Promise.all([open(started), vm.fresh])
    return value
  } catch (error) {
    const isGone = await Promise.race([vm.exited.then(() => true), sleep(EXIT_NOTICE_MS, false)])
    await vm.stop()
    throw isGone && error instanceof GuestUnresponsiveError ? new GuestGoneError(error.message) : error
  }
}

/** Counts failures of each kind of template in this start. A guest that timed out is not retried from the same state. */
function countFailure(failures: Map<string, number>, { record }: Template, error: unknown): number {
  const isUnfit = error instanceof GuestUnresponsiveError && !(error instanceof GuestGoneError)
  const isLate = isUnfit || kindOf(error) === 'deadline_exceeded'
  const count = Math.max((failures.get(record.kind) ?? 0) + 1, isLate ? 2 : 1)
  failures.set(record.kind, count)
  return count
}

function isTemplateFault(error: unknown): boolean {
  const kinds = ['state_unusable', 'qemu_failed', 'qmp_failed', 'guest_failed', 'deadline_exceeded']
  return error instanceof GuestUnresponsiveError || kinds.includes(kindOf(error) ?? '')
}

function kindOf(error: unknown): string | undefined {
  return error instanceof VmError ? error.kind : undefined
}
