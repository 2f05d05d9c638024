// One QEMU process and its inherited descriptors: monitor, console, ports, drives. QEMU gets only the paths of kernel,
// initramfs, memory file and socket folder, no environment, and no terminal. Keeps a bounded tail of stderr. Does not
// decide what to run.

import type { ChildProcess } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { constants } from 'node:os'
import type { Duplex, Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { FIRST_FD, killHeld, type StdioEntry, spawnHeld } from '../../processes/held-process.ts'
import { ByteRing } from './byte-ring.ts'
import { type HostFile, insidePath, type Launcher, wrapCommand } from './launcher.ts'
import {
  type Accelerator,
  type BackingSpec,
  type BootSpec,
  buildQemuArgs,
  type DriveSpec,
  type LayerSpec,
} from './qemu-args.ts'
import { VmConsole } from './vm-console.ts'

const STDERR_KEPT_BYTES = 16 * 1024
/** Time for the kernel to free the memory of a killed QEMU, even on a busy machine. */
const LAST_EXIT_MS = 10_000

export interface DrivePlan {
  readonly serial: string
  /** Open descriptor in this process; the caller closes it after the spawn. */
  readonly fd: number
  readonly format: 'raw' | 'qcow2'
  readonly readOnly: boolean
  readonly bootable?: boolean
  /** Open descriptors of the files below a qcow2 file, nearest first; the caller closes them too. */
  readonly backings?: readonly BackingSpec[]
  /** Open descriptor of the same file, for reading; the caller closes it too. */
  readonly readerFd?: number
}

/** The guest's memory in a host file. */
export interface MemoryFile {
  readonly path: string
  /** Whether the guest's writes reach the file. */
  readonly share: boolean
  /** Whether this QEMU can map it privately from a read-only file. */
  readonly readOnly: boolean
  /** Whether other VMs map it too. */
  readonly isTemplate?: boolean
}

export interface QemuPlan {
  readonly name: string
  /** Absolute path without symbolic links. */
  readonly qemu: string
  readonly launcher: Launcher
  readonly seccomp: boolean
  readonly accelerator: Accelerator
  readonly cpus: number
  readonly memoryBytes: number
  /** Kernel and initramfs as host paths. */
  readonly boot: BootSpec
  readonly drives: readonly DrivePlan[]
  /** See {@link StartVmOptions}. */
  readonly stopsWhenDiskFull?: boolean
  /** Names of virtio-serial ports. */
  readonly ports: readonly string[]
  /** Absent: anonymous memory. */
  readonly memory?: MemoryFile
  /** Open descriptor of a saved state; QEMU waits for the command to load it from {@link QemuProcess.stateUri}. */
  readonly stateFd?: number
  /** A host folder for sockets that the host creates later, to which QEMU saves its state. */
  readonly socketFolder?: string
  /** Open descriptor of an empty file for the block node `overlay`. */
  readonly overlayFd?: number
  /** Open descriptors of empty files for layers, each for writing and for reading. */
  readonly layers?: readonly LayerSpec[]
}

export interface QemuExit {
  /** Exit status; null when a signal ended it. */
  readonly code: number | null
  readonly signal: string | null
  /** Why it could not be started. */
  readonly spawnError?: Error
}

export interface QemuProcess {
  readonly qmp: Duplex
  readonly console: VmConsole
  /** One stream per port of the plan, in the same order. */
  readonly ports: readonly Duplex[]
  /**
   * The process id of QEMU itself (not of its launcher), as the host sees it. Call it while QEMU runs; earlier, or on a
   * kernel without this information, it may be a process whose end also ends QEMU.
   */
  findPid(): Promise<number>
  /** Resolves once QEMU and its launcher are gone; never rejects. */
  readonly exited: Promise<QemuExit>
  stderrTail(): string
  /** URI of QEMU's saved state; absent without one. */
  readonly stateUri?: string
  /** The path of a name in the socket folder, as QEMU sees it. */
  socketPath(name: string): string
  /** Kills QEMU and its launcher immediately. Harmless after its end. */
  kill(): void
  /** Closes the host's ends of all streams and discards unread data. */
  destroyStreams(): void
}

/** Whether this version can privately map a read-only file (`rom`, since 8.2). */
export function canMapReadOnly(version: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number)
  return major > 8 || (major === 8 && minor >= 2)
}

/** Starts QEMU. A failure to start resolves `exited` with `spawnError`; never throws. */
export function spawnQemu(plan: QemuPlan): QemuProcess {
  const slots = assignSlots(plan)
  const command = buildCommand(plan, slots)
  const child = spawnHeld(command, slots.more)
  const stream = (slot: number) => child.stdio[slot] as Duplex
  const streams = [slots.qmp, slots.console, ...slots.ports].map(stream)
  const stderr = new ByteRing(STDERR_KEPT_BYTES)
  child.stderr?.on('data', (chunk: Buffer) => stderr.push(chunk))
  const first = readFirstPid(child, slots.info === undefined ? undefined : stream(slots.info))
  const exited = watchExit(child, plan.launcher.kind === 'bubblewrap')
  return {
    qmp: stream(slots.qmp),
    console: new VmConsole(stream(slots.console)),
    ports: slots.ports.map(stream),
    findPid: async () => findOnlyChild(await first),
    exited,
    stderrTail: () => stderr.text(),
    ...(slots.state === undefined ? {} : { stateUri: `fd:${slots.state}` }),
    socketPath: (name) => `${command.socketFolder}/${name}`,
    kill: () => killHeld(child),
    destroyStreams: () => {
      for (const each of streams) each.destroy()
    },
  }
}

/** Descriptor numbers in the child. */
interface Slots {
  /** From FIRST_FD on. */
  readonly more: StdioEntry[]
  readonly qmp: number
  readonly console: number
  readonly info: number | undefined
  readonly ports: readonly number[]
  readonly drives: readonly number[]
  readonly backings: readonly (readonly BackingSpec[] | undefined)[]
  readonly readers: readonly (number | undefined)[]
  readonly layers: readonly LayerSpec[]
  readonly state: number | undefined
  readonly overlay: number | undefined
}

function assignSlots(plan: QemuPlan): Slots {
  const more: StdioEntry[] = []
  const add = (entry: StdioEntry): number => FIRST_FD + more.push(entry) - 1
  const addIf = (fd: number | undefined) => (fd === undefined ? undefined : add(fd))
  // Streams first (see spawnHeld), then files.
  return {
    more,
    qmp: add('pipe'),
    console: add('pipe'),
    info: plan.launcher.kind === 'bubblewrap' ? add('pipe') : undefined,
    ports: plan.ports.map(() => add('pipe')),
    drives: plan.drives.map((drive) => add(drive.fd)),
    backings: plan.drives.map((drive) => drive.backings?.map(({ fd, format }) => ({ fd: add(fd), format }))),
    readers: plan.drives.map((drive) => addIf(drive.readerFd)),
    layers: (plan.layers ?? []).map(({ fd, readerFd }) => ({ fd: add(fd), readerFd: add(readerFd) })),
    state: addIf(plan.stateFd),
    overlay: addIf(plan.overlayFd),
  }
}

function buildCommand(plan: QemuPlan, slots: Slots) {
  const { boot, launcher, memory, socketFolder } = plan
  const files: HostFile[] = []
  const inside = (path: string, writable = false) =>
    insidePath(launcher, files, files.push({ path, writable }) - 1)
  const insideBoot: BootSpec =
    boot.kind === 'disk'
      ? boot
      : {
          ...boot,
          kernel: inside(boot.kernel),
          ...(boot.initramfs === undefined ? {} : { initramfs: inside(boot.initramfs) }),
        }
  const insideMemory = memory && { ...memory, path: inside(memory.path, !memory.readOnly) }
  const insideSockets = socketFolder === undefined ? '' : inside(socketFolder)
  const args = buildQemuArgs({
    ...plan,
    machine: 'q35',
    boot: insideBoot,
    memory: insideMemory ? { kind: 'file', ...insideMemory } : { kind: 'anonymous' },
    incoming: slots.state !== undefined,
    drives: plan.drives.map((drive, index) => driveSpec(drive, slots, index)),
    ports: plan.ports.map((name, index) => ({ name, fd: slots.ports[index] ?? -1 })),
    qmpFd: slots.qmp,
    consoleFd: slots.console,
    layers: slots.layers,
    ...(slots.overlay === undefined ? {} : { overlayFd: slots.overlay }),
  })
  const command = wrapCommand(launcher, {
    qemu: plan.qemu,
    args,
    files,
    devices: plan.accelerator === 'kvm' ? ['/dev/kvm'] : [],
    ...(slots.info === undefined ? {} : { infoFd: slots.info }),
  })
  return { ...command, socketFolder: insideSockets }
}

function driveSpec(
  { serial, format, readOnly, bootable }: DrivePlan,
  slots: Slots,
  index: number,
): DriveSpec {
  const backings = slots.backings[index]
  const readerFd = slots.readers[index]
  return {
    ...{ serial, format, readOnly },
    ...(bootable === undefined ? {} : { bootable }),
    source: { fd: slots.drives[index] ?? -1 },
    ...(backings === undefined ? {} : { backings }),
    ...(readerFd === undefined ? {} : { readerFd }),
  }
}

function watchExit(child: ChildProcess, behindWrapper: boolean): Promise<QemuExit> {
  return new Promise((resolve) => {
    child.once('error', (spawnError) => resolve({ code: null, signal: null, spawnError }))
    child.once('exit', (code, signal) => {
      // Bubblewrap reports a signal as 128 + its number.
      const hidden = behindWrapper && code !== null && code > 128 ? signalName(code - 128) : undefined
      void lastExit(child).then(() => resolve(hidden ? { code: null, signal: hidden } : { code, signal }))
    })
  })
}

/**
 * When both are killed, the launcher may end before QEMU, which still locks its disk. The last one to end closes
 * stderr.
 */
async function lastExit({ stderr }: ChildProcess): Promise<void> {
  if (stderr === null || stderr.closed) return
  const done = new AbortController()
  const closed = new Promise<void>((resolve) => stderr.once('close', resolve))
  await Promise.race([closed, sleep(LAST_EXIT_MS, undefined, { signal: done.signal }).catch(() => undefined)])
  done.abort()
}

function signalName(number: number): string | undefined {
  return Object.entries(constants.signals).find(([, value]) => value === number)?.[0]
}

/** Bubblewrap reports the first process of its namespace; otherwise the child is QEMU or becomes it. */
async function readFirstPid(
  child: ChildProcess,
  info: Readable | undefined,
): Promise<{ pid: number; inner: boolean }> {
  let text = ''
  try {
    // Read to the end: bubblewrap writes in parts, and a closed pipe would end it.
    for await (const chunk of info ?? []) text += String(chunk)
  } catch {
    // It ended early; see `exited`.
  }
  const pid = /"child-pid"\s*:\s*(\d+)/.exec(text)?.[1]
  return pid === undefined ? { pid: child.pid ?? 0, inner: false } : { pid: Number(pid), inner: true }
}

/** The namespace's first process has one child: QEMU. */
async function findOnlyChild({ pid, inner }: { pid: number; inner: boolean }): Promise<number> {
  if (!inner) return pid
  const children = await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8').catch(() => '')
  return Number.parseInt(children, 10) || pid
}
