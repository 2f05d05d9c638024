// Prepares a start: checks options, image and machine, opens the drives, and creates the VM's folder. Detects every
// error that needs no running QEMU.
import { access, constants, open, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { hasCode } from '#specs/errors.ts'
import { describeLeftOut, searchProgram } from '../processes/programs.ts'
import { type Folders, prepareFolders } from '../state/folders.ts'
import { READY_MARKER } from './boot-watch.ts'
import type { CheckpointDisk, PreparedDisk } from './checkpoints/checkpoint-disk.ts'
import { type DriveOptions, openDrives, type ScratchFile, type ScratchStart } from './drives.ts'
import { type Machine, probeRequested } from './qemu/accelerator.ts'
import { type ConfineMode, chooseLauncher } from './qemu/confinement.ts'
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
const RPC_PORT = 'caisson.rpc'
const HTTP_PORT = 'caisson.http'

export interface StartVmOptions extends Partial<VmSize>, DriveOptions {
  /** State and cache folders; created if missing. */
  readonly folders: Folders
  /** `auto` (default) tests the machine; other values are used as given. */
  readonly accelerator?: Accelerator | 'auto'
  /** Required confinement of QEMU; default `auto`. */
  readonly confine?: ConfineMode
  /** Words `caisson.NAME=VALUE` for the guest, on the kernel's command line. */
  readonly guestOptions?: Readonly<Record<string, string>>
  /** Prefix of the console line that reports readiness; default: init's own. */
  readonly readyMarker?: string
  /** Time limit from spawn to readiness; default 90 s, many times what emulation needs. */
  readonly deadlineMs?: number
  /** Whether a full host disk pauses the VM; the caller must then resume it. Default: the guest's write fails. */
  readonly stopsWhenDiskFull?: boolean
  /** Aborts the start; no effect once the VM runs. */
  readonly signal?: AbortSignal
}

/** Start state of a VM that does not boot with an empty disk. */
export interface StartState {
  /** Default: an empty disk. */
  readonly scratch?: ScratchStart
  readonly memory?: MemoryFile
  /** A saved state to load instead of a boot. */
  readonly stateFile?: string
  /** An empty file for the block node `overlay`. */
  readonly overlayFile?: string
}

export interface VmCommand {
  /** The options it was made from. */
  readonly options: StartVmOptions
  readonly folder: VmFolder
  readonly qemu: QemuPlan
  readonly confinement: Confinement
  readonly readyMarker: string
  /** Whether the guest's init accepts random bytes and time from the host. */
  readonly refreshes: boolean
  readonly scratch: ScratchFile
  /** The scratch disk with its files, if it can have checkpoints. */
  readonly checkpoints?: { readonly disk: CheckpointDisk; readonly prepared: PreparedDisk }
  /** Closes this process's descriptors: after the spawn, or if there will be none. */
  closeFiles(): Promise<void>
}

/** @throws VmError in phase `prepare`; nothing is left behind */
export async function planVm(
  options: StartVmOptions,
  machine: Machine,
  start: StartState = {},
): Promise<VmCommand> {
  const size = resolveSize(options)
  const { accelerator: requested = 'auto' } = options
  const accelerator = requested === 'auto' ? machine.accelerator : requested
  const boot = bootSpec(options, accelerator)
  const launcher = await chooseLauncher(machine.confinement, {
    mode: options.confine ?? 'auto',
    seccomp: machine.seccomp,
    files: 'disk' in options.image ? [] : [options.image.kernel, options.image.initramfs],
    devices: accelerator === 'kvm' ? ['/dev/kvm'] : [],
  })
  // A saved VM has its disk already. The save may have used the last space; refusing the restore would lose the VM.
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
      layers: opened.layers,
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
      ...(opened.checkpoints === undefined ? {} : { checkpoints: opened.checkpoints }),
      closeFiles: () => files.disposeAsync(),
    }
  } catch (error) {
    await files.disposeAsync()
    await folder.remove()
    throw error
  }
}

/**
 * Creates the folders, removes leftovers of dead hosts, and tests this machine.
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
      remedy: 'Correct the folder, or set CAISSON_HOME and CAISSON_CACHE to other folders.',
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
  return await probeRequested(options.accelerator ?? 'auto', {
    qemu: found.path,
    ...('disk' in options.image ? {} : { kernel: options.image.kernel }),
    cacheDirectory: options.folders.cache,
    confine: options.confine ?? 'auto',
    fresh,
    ...(options.signal ? { signal: options.signal } : {}),
  })
}

/** If QEMU gets its own user, the memory file belongs to that user; a template's belongs to a shared group. */
async function prepareMemory({ path, isTemplate }: MemoryFile, launcher: Launcher): Promise<void> {
  const drop = 'drop' in launcher ? launcher.drop : undefined
  if (drop !== undefined && isTemplate !== true) await giveMemory(path, drop.uid)
}

function bootSpec(options: StartVmOptions, accelerator: Accelerator): BootSpec {
  if ('disk' in options.image) return { kind: 'disk' }
  const extra = Object.entries(options.guestOptions ?? {}).map(([name, value]) => {
    // A space or quote would split one option into two.
    if (!/^[a-z][a-z0-9_-]*$/.test(name) || !/^[\w./:,=+@-]*$/.test(value)) {
      throw new TypeError(`bad guest option ${name}`)
    }
    return `caisson.${name}=${value}`
  })
  // no_timer_check: on a busy machine an emulated timer is late, and the kernel would panic.
  const words = ['console=ttyS0', 'quiet', 'loglevel=4', 'panic=-1', 'no_timer_check']
  // Of the HPET the kernel reads 32 bits: after a standstill of 21 to 43 s the guest's time would stop for up to 21 s more.
  if (accelerator === 'tcg') words.push('tsc=reliable')
  const cmdline = [...words, ...extra].join(' ')
  return { kind: 'kernel', kernel: options.image.kernel, initramfs: options.image.initramfs, cmdline }
}

/** A restored VM does not read its kernel; a QEMU of another user could not open one in the VM's folder. */
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

const SECTOR_BYTES = 512
/** Length of the real-mode part after the first sector, in sectors; 0 means 4. */
const SETUP_SECTORS_OFFSET = 0x1f1
const MAGIC_OFFSET = 0x202
const MAGIC = 'HdrS'
/** Bytes after that part, which QEMU expects. */
const REST_BYTES = 4096

/**
 * Writes the head to `file`, which must not exist; world-readable, since QEMU may run as another user. False if the
 * kernel has another format.
 */
export async function writeKernelHead(kernel: string, file: string): Promise<boolean> {
  const handle = await open(kernel)
  try {
    const header = Buffer.alloc(2 * SECTOR_BYTES)
    await handle.read(header, 0, header.length, 0)
    if (header.toString('latin1', MAGIC_OFFSET, MAGIC_OFFSET + MAGIC.length) !== MAGIC) return false
    const sectors = header.readUInt8(SETUP_SECTORS_OFFSET) || 4
    const head = Buffer.alloc((sectors + 1) * SECTOR_BYTES + REST_BYTES)
    const { bytesRead } = await handle.read(head, 0, head.length, 0)
    if (bytesRead < head.length) return false
    await writeFile(file, head, { flag: 'wx', mode: 0o644 })
    return true
  } finally {
    await handle.close()
  }
}
