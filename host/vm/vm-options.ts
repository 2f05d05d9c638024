// Limits of a VM's size, and checks that this machine has the resources now. Errors name a value that would work.

import { statfs } from 'node:fs/promises'
import { availableParallelism, totalmem } from 'node:os'
import type { VmDiskImage } from './drives.ts'
import type { Accelerator } from './qemu/qemu-args.ts'
import { VmError } from './vm-error.ts'

const MIB = 1024 * 1024
const GIB = 1024 * MIB

/**
 * 1 GiB: Node's agent uses about 150 MiB of the guest's memory, which also holds the root overlay. Several hundred MiB
 * remain for a tool call; the host pays only for touched pages.
 */
export const DEFAULT_MEMORY_BYTES = GIB
/** Minimum for the kernel, the agent and the overlay. */
export const MIN_MEMORY_BYTES = 256 * MIB
/** Sparse: only the guest's writes take space on the host. */
export const DEFAULT_DISK_BYTES = 8 * GIB
export const MIN_DISK_BYTES = 64 * MIB
export const MAX_DISK_BYTES = 1024 * GIB
export const MAX_CPUS = 64

/** Memory a VM has touched when the agent is ready, including QEMU's own. */
export const START_MEMORY_BYTES = 384 * MIB
/** With less free space than this, the guest's disk would fail during the work. */
const START_DISK_BYTES = 512 * MIB

export interface VmSize {
  readonly memoryBytes: number
  readonly cpus: number
  readonly diskBytes: number
}

/** Size and machine of a VM. */
export interface VmOptions {
  /** Memory of the guest in bytes, whole MiB, at least 256 MiB. Default: 1 GiB. */
  readonly memoryBytes?: number
  /** Virtual CPUs, 1 to 64. Default: 2, or 1 on a machine with one. */
  readonly cpus?: number
  /**
   * Size of the guest's disk in bytes, whole MiB, at least 64 MiB. Sparse: only what the guest writes takes
   * space. Default: 8 GiB.
   */
  readonly diskBytes?: number
  /**
   * A bootable disk instead of the image's kernel and root, such as `npm run image:disk` makes. Default: the
   * image.
   */
  readonly disk?: VmDiskImage
  /** How QEMU executes the guest's code; `auto` tests the machine. Default: `auto`. */
  readonly accelerator?: Accelerator | 'auto'
  /** Confinement of QEMU: `require` refuses to start without it, `auto` warns. Default: `auto`. */
  readonly confine?: 'auto' | 'require'
  /** `cold` boots the VM; `auto` copies a template, and boots where that is not possible. Default: `auto`. */
  readonly start?: 'auto' | 'cold'
}

/** Size, machine and life of the VM of a run. */
export interface RunVmOptions extends VmOptions {
  /**
   * Time to wait for a person in milliseconds before the VM is saved to disk until the answer; 0 for never.
   * Default: 300,000 (5 min).
   */
  readonly hibernateAfterMs?: number
  /**
   * Time to wait for answers in milliseconds before the run goes to sleep: the VM and its saved memory end, and journal and
   * disk remain. An answer has another agent continue from the last checkpoint; programs that ran in the background are
   * gone. A run without a checkpoint does not go to sleep. 0 for never. Default: 3,600,000 (1 h).
   */
  readonly sleepAfterMs?: number
  /**
   * Whether to save the VM at the end for a run that continues this one. Default: whether this run continues
   * another.
   */
  readonly keep?: boolean
  /**
   * How often a run whose VM or agent is lost continues in a new VM, from its last checkpoint; 0 for never. A VM of a
   * pool has no checkpoints: its run starts from its beginning. Default: 3.
   */
  readonly recoveries?: number
}

/** Losses after which a run ends. */
export const DEFAULT_RECOVERIES = 3

/** After this time without an answer the VM is saved, so that its memory is free until the answer arrives. */
export const DEFAULT_HIBERNATE_AFTER_MS = 5 * 60_000

/** After this time a run that waits for answers keeps no memory of its VM. */
export const DEFAULT_SLEEP_AFTER_MS = 60 * 60_000

/** Fills in defaults. @throws VmError `bad_option` */
export function resolveSize(requested: Partial<VmSize>): VmSize {
  const memoryBytes = requested.memoryBytes ?? DEFAULT_MEMORY_BYTES
  const cpus = requested.cpus ?? Math.min(2, availableParallelism())
  const diskBytes = requested.diskBytes ?? DEFAULT_DISK_BYTES
  const most = Math.max(MIN_MEMORY_BYTES, Math.floor(totalmem() / MIB) * MIB)
  checkBytes('memory', memoryBytes, MIN_MEMORY_BYTES, most)
  checkBytes('disk', diskBytes, MIN_DISK_BYTES, MAX_DISK_BYTES)
  if (!Number.isSafeInteger(cpus) || cpus < 1 || cpus > MAX_CPUS) {
    throw badOption(`1 to ${MAX_CPUS} CPUs`, String(cpus), 'Choose a whole number of CPUs in that range.')
  }
  return { memoryBytes, cpus, diskBytes }
}

function checkBytes(what: string, bytes: number, least: number, most: number): void {
  if (Number.isSafeInteger(bytes) && bytes % MIB === 0 && bytes >= least && bytes <= most) return
  throw badOption(
    `${what} of ${least / MIB} to ${most / MIB} MiB in whole MiB`,
    bytes % MIB === 0 ? `${bytes / MIB} MiB` : `${bytes} B`,
    `Choose a ${what} size in that range.`,
  )
}

function badOption(expected: string, seen: string, remedy: string): VmError {
  return new VmError({ kind: 'bad_option', phase: 'prepare', expected, seen, remedy })
}

/**
 * Checks memory and disk for a start now. Does not require the guest's full memory, which is allocated page by page.
 * @throws VmError `memory_short` or `disk_short`
 */
export async function checkResources(size: VmSize, folder: string): Promise<void> {
  checkMemory(size)
  const disk = await readFreeBytes(folder)
  const wanted = Math.min(START_DISK_BYTES, size.diskBytes)
  if (disk < wanted) {
    throw new VmError({
      kind: 'disk_short',
      phase: 'prepare',
      expected: `at least ${wanted / MIB} MiB free in ${folder}`,
      seen: `${Math.floor(disk / MIB)} MiB`,
      remedy:
        'Free disk space, set CAISSON_HOME to a folder on a larger disk, or give the VM a smaller disk.',
    })
  }
}

/** Checks only the memory. @throws VmError `memory_short` */
export function checkMemory(size: VmSize): void {
  const needed = Math.min(START_MEMORY_BYTES, size.memoryBytes)
  const memory = process.availableMemory()
  if (memory < needed) {
    throw new VmError({
      kind: 'memory_short',
      phase: 'prepare',
      expected: `at least ${needed / MIB} MiB of memory available`,
      seen: `${Math.floor(memory / MIB)} MiB`,
      remedy: 'Close other programs or VMs, or give the VM less memory.',
    })
  }
}

/** Bytes available to an unprivileged user on the disk of `folder`. */
export async function readFreeBytes(folder: string): Promise<number> {
  const { bavail, bsize } = await statfs(folder)
  return bavail * bsize
}
