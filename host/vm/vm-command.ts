// The preparation of a start: checks options, image and machine, opens the drives, and makes the VM's folder.
// Everything that can be refused without starting QEMU is refused here.

import { access, constants, open } from 'node:fs/promises'
import { join } from 'node:path'
import { hasCode } from '#specs/errors.ts'
import { describeLeftOut, searchProgram } from '../processes/programs.ts'
import { type Folders, prepareFolders } from '../state/folders.ts'
import { READY_MARKER } from './boot-watch.ts'
import { type DriveOptions, openDrives, type ScratchFile, type ScratchStart } from './drives.ts'
import { findCandidates, type Machine, probeMachine } from './qemu/accelerator.ts'
import { type ConfineMode, chooseLauncher } from './qemu/confinement.ts'
import { writeKernelHead } from './qemu/kernel-head.ts'
import { type Confinement, confinementOf, type Launcher } from './qemu/launcher.ts'
import type { Accelerator, BootSpec } from './qemu/qemu-args.ts'
import type { MemoryFile, QemuPlan } from './qemu/qemu-process.ts'
import { QEMU } from './qemu/qemu-programs.ts'
import { giveMemory } from './qemu/vm-user.ts'
import { ROOT_PORT } from './reseed.ts'
import { VmError } from './vm-error.ts'
import { createVmFolder, processName, sweepDeadVms, type VmFolder } from './vm-folder.ts'
import { checkMemory, checkResources, resolveSize, type VmSize } from './vm-options.ts'

/** Two of the three ports of every VM; the third is {@link ROOT_PORT}. */
export const RPC_PORT = 'caisson.rpc'
export const HTTP_PORT = 'caisson.http'

export interface StartVmOptions extends Partial<VmSize>, DriveOptions {
  /** Where state and cache lie; they are made when they do not exist. */
  readonly folders: Folders
  /** `auto` (the default) probes; anything else is taken as it is. */
  readonly accelerator?: Accelerator | 'auto'
  /** How far QEMU must be confined; default `auto`. */
  readonly confine?: ConfineMode
  /** Words `caisson.NAME=VALUE` for the guest, on the kernel's command line. */
  readonly guestOptions?: Readonly<Record<string, string>>
  /** The start of the console line that says the guest is ready; default is init's own. */
  readonly readyMarker?: string
  /** Time for everything from spawn to readiness; default 90 s, many times what emulation needs. */
  readonly deadlineMs?: number
  /** Whether the VM stops when the host's disk is full; whoever sets this lets it go on. Default: the guest's write fails. */
  readonly stopsWhenDiskFull?: boolean
  /** Gives up the start; has no effect once the VM runs. */
  readonly signal?: AbortSignal
}

/** Where a VM begins, when not with a boot and an empty disk. */
export interface StartState {
  /** Default: an empty disk. */
  readonly scratch?: ScratchStart
  readonly memory?: MemoryFile
  /** A saved state, to be loaded instead of a boot. */
  readonly stateFile?: string
  /** An empty file for the block node `overlay`. */
  readonly overlayFile?: string
}

export interface VmCommand {
  /** What it was made from. */
  readonly options: StartVmOptions
  readonly folder: VmFolder
  readonly qemu: QemuPlan
  readonly confinement: Confinement
  readonly readyMarker: string
  /** Whether the guest is one whose init takes random bytes and time from the host. */
  readonly refreshes: boolean
  readonly scratch: ScratchFile
  /** Closes this process's own descriptors: after the spawn, or when there will be none. */
  closeFiles(): Promise<void>
}

/** @throws VmError in phase `prepare`; then nothing is left to clear */
export async function planVm(
  options: StartVmOptions,
  machine: Machine,
  start: StartState = {},
): Promise<VmCommand> {
  const size = resolveSize(options)
  const boot = bootSpec(options)
  const accelerator = await chooseAccelerator(options.accelerator ?? 'auto', machine)
  const launcher = await chooseLauncher(machine.confinement, {
    mode: options.confine ?? 'auto',
    seccomp: machine.seccomp,
    files: 'disk' in options.image ? [] : [options.image.kernel, options.image.initramfs],
    devices: accelerator === 'kvm' ? ['/dev/kvm'] : [],
  })
  // A saved VM brings its disk along. The save itself may have taken the last room: to refuse it now would be its end.
  if (start.scratch?.kind === 'moved') checkMemory(size)
  else await checkResources(size, options.folders.vms)
  const folder = await createVmFolder(options.folders.vms)
  const files = new AsyncDisposableStack()
  try {
    const openFile = async (path: string, flags: 'r' | 'r+') => {
      const handle = await open(path, flags)
      files.defer(() => handle.close())
      return handle.fd
    }
    if (start.memory !== undefined) await prepareMemory(start.memory, launcher)
    const scratch = start.scratch ?? { kind: 'blank', bytes: size.diskBytes }
    const opened = await openDrives(options, scratch, folder, openFile)
    const qemu: QemuPlan = {
      name: processName(folder.id),
      qemu: machine.qemu,
      launcher,
      seccomp: machine.seccomp,
      accelerator,
      cpus: size.cpus,
      memoryBytes: size.memoryBytes,
      boot: start.stateFile === undefined ? boot : await shortenBoot(boot, launcher, folder),
      drives: opened.drives,
      ...(options.stopsWhenDiskFull === undefined ? {} : { stopsWhenDiskFull: options.stopsWhenDiskFull }),
      ports: [ROOT_PORT, RPC_PORT, HTTP_PORT],
      socketFolder: folder.sockets,
      ...(start.memory ? { memory: start.memory } : {}),
      ...(start.stateFile === undefined ? {} : { stateFd: await openFile(start.stateFile, 'r') }),
      ...(start.overlayFile === undefined ? {} : { overlayFd: await openFile(start.overlayFile, 'r+') }),
    }
    return {
      options,
      folder,
      qemu,
      confinement: confinementOf(launcher, machine.seccomp),
      readyMarker: options.readyMarker ?? READY_MARKER,
      refreshes: options.readyMarker === undefined,
      scratch: opened.scratch,
      closeFiles: () => files.disposeAsync(),
    }
  } catch (error) {
    await files.disposeAsync()
    await folder.remove()
    throw error
  }
}

/**
 * Makes the folders, clears what dead hosts left, and finds out what this machine can do.
 * @throws VmError `state_folder_unsafe`, `no_qemu` or `image_unreadable`
 */
export async function prepareMachine(options: StartVmOptions, fresh: boolean): Promise<Machine> {
  resolveSize(options)
  try {
    await prepareFolders(options.folders)
  } catch (error) {
    if (!hasCode(error, 'state_unavailable')) throw error
    throw new VmError({
      kind: 'state_folder_unsafe',
      phase: 'prepare',
      expected: 'state and cache folders of this user alone',
      seen: error.message,
      remedy: 'Correct the folder, or choose others by CAISSON_HOME and CAISSON_CACHE.',
      cause: error,
    })
  }
  await checkFiles(options)
  await sweepDeadVms(options.folders.vms)
  const found = await searchProgram(QEMU)
  if (found.path === undefined) {
    throw new VmError({
      kind: 'no_qemu',
      phase: 'prepare',
      expected: `${QEMU} on PATH`,
      seen: `none${describeLeftOut(found)}`,
      remedy: 'Install QEMU (Debian: apt install qemu-system-x86, macOS: brew install qemu).',
    })
  }
  return probeMachine({
    qemu: found.path,
    ...('disk' in options.image ? {} : { kernel: options.image.kernel }),
    cacheDirectory: options.folders.cache,
    confine: options.confine ?? 'auto',
    fresh,
    ...(options.signal ? { signal: options.signal } : {}),
  })
}

/** Where QEMU becomes a user of its own, the memory is that user's; a template's has a group for all of them. */
async function prepareMemory({ path, isTemplate }: MemoryFile, launcher: Launcher): Promise<void> {
  const drop = 'drop' in launcher ? launcher.drop : undefined
  if (drop !== undefined && isTemplate !== true) await giveMemory(path, drop.uid)
}

async function chooseAccelerator(wish: Accelerator | 'auto', machine: Machine): Promise<Accelerator> {
  if (wish === 'auto') return machine.accelerator
  if (wish === 'tcg' || (await findCandidates()).includes(wish)) return wish
  throw new VmError({
    kind: 'accelerator_unavailable',
    phase: 'prepare',
    expected: `the accelerator ${wish}, as asked for`,
    seen: wish === 'kvm' ? '/dev/kvm cannot be opened' : 'this machine does not have it',
    remedy: 'Use --accel tcg, or run caisson doctor to see what this machine has.',
  })
}

function bootSpec(options: StartVmOptions): BootSpec {
  if ('disk' in options.image) return { kind: 'disk' }
  const words = Object.entries(options.guestOptions ?? {}).map(([name, value]) => {
    // A space or quote would let one option become two.
    if (!/^[a-z][a-z0-9_-]*$/.test(name) || !/^[\w./:,=+@-]*$/.test(value)) {
      throw new TypeError(`bad guest option ${name}`)
    }
    return `caisson.${name}=${value}`
  })
  // no_timer_check: on a busy machine an emulated timer comes late, and the kernel would panic for want of it.
  const cmdline = ['console=ttyS0', 'quiet', 'loglevel=4', 'panic=-1', 'no_timer_check', ...words].join(' ')
  return { kind: 'kernel', kernel: options.image.kernel, initramfs: options.image.initramfs, cmdline }
}

/** A VM that is resumed does not read its kernel; a QEMU of another user could not get at one in the VM's folder. */
async function shortenBoot(boot: BootSpec, launcher: Launcher, folder: VmFolder): Promise<BootSpec> {
  if (boot.kind === 'disk' || (launcher.kind === 'setpriv' && launcher.drop !== undefined)) return boot
  const kernel = join(folder.path, 'kernel-head')
  return (await writeKernelHead(boot.kernel, kernel)) ? { ...boot, kernel } : boot
}

async function checkFiles({ image, workspaceDisk }: StartVmOptions): Promise<void> {
  const files = 'disk' in image ? [image.disk] : [image.kernel, image.initramfs, image.root, image.agentDisk]
  for (const path of [...files, ...(workspaceDisk === undefined ? [] : [workspaceDisk])]) {
    try {
      await access(path, constants.R_OK)
    } catch (cause) {
      const isImage = path !== workspaceDisk
      throw new VmError({
        kind: 'image_unreadable',
        phase: 'prepare',
        expected: `a readable ${isImage ? 'image' : 'workspace disk'} at ${path}`,
        seen: cause instanceof Error && 'code' in cause ? String(cause.code) : 'no such file',
        remedy: isImage ? 'Build the image: caisson image build.' : 'Start the run again.',
        cause,
      })
    }
  }
}
