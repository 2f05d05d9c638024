// Builds QEMU's command line as a pure function of a typed description. User input and paths are passed as JSON or as
// descriptor numbers, so that a comma in a path never becomes an option. Cannot describe network cards, USB controllers
// or displays.

/** Executes the guest's instructions. QEMU's own policy treats only kvm and hvf as security boundaries. */
export type Accelerator = 'kvm' | 'hvf' | 'tcg'

type DriveSource =
  /** Number of an open descriptor that QEMU inherits. */
  | { readonly fd: number }
  /** A path as QEMU sees it. */
  | { readonly path: string }

/** A file below a qcow2 file, read where that one has nothing. */
export interface BackingSpec {
  readonly fd: number
  readonly format: 'raw' | 'qcow2'
}

/** Descriptors of one file. */
export interface LayerSpec {
  readonly fd: number
  readonly readerFd: number
}

export interface DriveSpec {
  /** Serial number by which the guest finds it in /sys/block: 1 to 20 of a-z, 0-9 and `-`. */
  readonly serial: string
  readonly source: DriveSource
  readonly format: 'raw' | 'qcow2'
  readonly readOnly: boolean
  /** Whether the firmware boots from it (only if `boot.kind` is disk). */
  readonly bootable?: boolean
  /** Files below it, nearest first; QEMU only reads them. */
  readonly backings?: readonly BackingSpec[]
  /** The same file, open for reading: QEMU opens it again so when another file is put on top. */
  readonly readerFd?: number
}

type MemorySpec =
  | { readonly kind: 'anonymous' }
  | {
      readonly kind: 'file'
      /** Path as QEMU sees it. */
      readonly path: string
      /** Whether the guest's writes reach the file; otherwise they are private to this VM. */
      readonly share: boolean
      /** Whether QEMU opens it read-only; requires `share` false and QEMU 8.2. */
      readonly readOnly: boolean
    }

export type BootSpec =
  | {
      readonly kind: 'kernel'
      /** Paths as QEMU sees them. */
      readonly kernel: string
      /** Absent: the kernel boots without one and panics for lack of a root (trial boot). */
      readonly initramfs?: string
      readonly cmdline: string
    }
  /** The firmware boots from the drive marked bootable. */
  | { readonly kind: 'disk' }

interface PortSpec {
  /** Name in the guest, such as `caisson.rpc`. */
  readonly name: string
  /** Descriptor of the host's stream socket. */
  readonly fd: number
}

export interface VmSpec {
  /** Shown in the process list; the sweep finds leftover processes by it. */
  readonly name: string
  readonly machine: 'q35'
  readonly accelerator: Accelerator
  readonly cpus: number
  /** A multiple of 1 MiB. */
  readonly memoryBytes: number
  /** Default: anonymous memory. */
  readonly memory?: MemorySpec
  /** Whether QEMU waits for a saved state instead of booting. */
  readonly incoming?: boolean
  /** Descriptor of an empty file for the block node `overlay`, without a device. */
  readonly overlayFd?: number
  /** Empty files that become layers of a disk while the VM runs, see {@link layerFile}. */
  readonly layers?: readonly LayerSpec[]
  /** Whether this QEMU has the seccomp sandbox (Linux). */
  readonly seccomp: boolean
  readonly boot: BootSpec
  readonly drives: readonly DriveSpec[]
  /** Whether a full host disk pauses the VM instead of failing the guest's write; the write is repeated on resume. */
  readonly stopsWhenDiskFull?: boolean
  readonly ports: readonly PortSpec[]
  /** Descriptors of the stream sockets of monitor and serial console. */
  readonly qmpFd: number
  readonly consoleFd: number
}

/**
 * Most translated code per VM in MiB; QEMU takes of it what it needs. Node.js and its programs need up to 230: with 64,
 * QEMU translates the same code again and again, and a run with MCP servers takes half as much processor time more.
 */
const TRANSLATION_CACHE_MIB = 256

/**
 * All that QEMU emulates but one feature. With `erms`, kernel and libraries copy and clear memory by `rep movsb` and `rep stosb`,
 * which QEMU carries out byte by byte: a run takes a sixth more processor time.
 */
const EMULATED_CPU = 'max,-erms'

/** Arguments for `qemu-system-*`, without the program's name. @throws TypeError for an invalid description */
export function buildQemuArgs(spec: VmSpec): string[] {
  return [
    ...['-name', checkName(spec.name), '-nodefaults', '-no-user-config', '-no-reboot'],
    ...['-display', 'none', '-vga', 'none'],
    ...sandboxArgs(spec.seccomp),
    ...machineArgs(spec),
    ...['-chardev', `socket,id=qmp,fd=${checkFd(spec.qmpFd)}`, '-mon', 'chardev=qmp,mode=control'],
    ...['-chardev', `socket,id=console,fd=${checkFd(spec.consoleFd)}`],
    ...device({ driver: 'isa-serial', chardev: 'console' }),
    ...['-object', JSON.stringify({ 'qom-type': 'rng-builtin', id: 'random' })],
    ...device({ driver: 'virtio-rng-pci', rng: 'random' }),
    ...portArgs(spec.ports),
    ...spec.drives.flatMap((drive, index) => driveArgs(drive, index, spec.stopsWhenDiskFull === true)),
    ...overlayArgs(spec),
    ...layerArgs(spec.layers),
    ...bootArgs(spec),
    ...(spec.incoming === true ? ['-incoming', 'defer'] : []),
  ]
}

function sandboxArgs(seccomp: boolean): string[] {
  return seccomp
    ? ['-sandbox', 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny']
    : []
}

function machineArgs({ machine, accelerator, cpus, memoryBytes, memory }: VmSpec): string[] {
  const mebibytes = memoryBytes / (1024 * 1024)
  if (!Number.isSafeInteger(mebibytes) || mebibytes < 1) throw new TypeError('memoryBytes must be whole MiB')
  if (!Number.isSafeInteger(cpus) || cpus < 1) throw new TypeError('cpus must be a positive whole number')
  const acceleration =
    accelerator === 'tcg' ? `tcg,thread=multi,tb-size=${TRANSLATION_CACHE_MIB}` : accelerator
  return [
    // The backend's id is part of the migration format: a restored VM must use the same name.
    ...['-machine', `${machine},memory-backend=ram`, '-m', `${mebibytes}M`],
    ...['-object', JSON.stringify({ ...memoryBackend(memory), id: 'ram', size: memoryBytes })],
    ...['-accel', acceleration, '-cpu', accelerator === 'tcg' ? EMULATED_CPU : 'host', '-smp', String(cpus)],
  ]
}

function memoryBackend(memory: MemorySpec = { kind: 'anonymous' }): Record<string, unknown> {
  if (memory.kind === 'anonymous') return { 'qom-type': 'memory-backend-ram' }
  if (memory.readOnly && memory.share) throw new TypeError('shared memory cannot be read-only')
  return {
    'qom-type': 'memory-backend-file',
    'mem-path': memory.path,
    share: memory.share,
    // `readonly` alone would make the guest's memory a ROM.
    ...(memory.readOnly ? { readonly: true, rom: 'off' } : {}),
  }
}

function portArgs(ports: readonly PortSpec[]): string[] {
  if (ports.length === 0) return []
  return [
    ...device({ driver: 'virtio-serial-pci', id: 'ports' }),
    ...ports.flatMap(({ name, fd }, index) => [
      ...['-chardev', `socket,id=port${index},fd=${checkFd(fd)}`],
      ...device({ driver: 'virtserialport', bus: 'ports.0', chardev: `port${index}`, name }),
    ]),
  ]
}

/** Descriptor sets: the drives' files from 1 on, then the overlay, further layers, and files below, the longest row. */
const OVERLAY_SET = 100
const LAYER_SET_BASE = 200
const BACKING_SET_BASE = 1_000

/** The block node of the file of a layer of {@link VmSpec.layers}. */
export function layerFile(index: number): object {
  const filename = `/dev/fdset/${LAYER_SET_BASE + index}`
  return { driver: 'file', filename, discard: 'unmap', ...unlocked }
}

/** QEMU has such a file open twice, and its two locks would exclude each other when layers are merged. */
const unlocked = { locking: 'off' } as const

function driveArgs(drive: DriveSpec, index: number, stopsWhenFull: boolean): string[] {
  if (!/^[a-z0-9-]{1,20}$/.test(drive.serial)) throw new TypeError(`bad drive serial: ${drive.serial}`)
  const own = fileNode(drive.source, index + 1, drive.readOnly)
  const blockdev = {
    driver: drive.format,
    'node-name': drive.serial,
    'read-only': drive.readOnly,
    ...(drive.readOnly ? {} : { discard: 'unmap', 'detect-zeroes': 'unmap' }),
    file: drive.readerFd === undefined ? own.node : { ...own.node, ...unlocked },
    ...backingNode(drive.backings ?? []),
  }
  return [
    ...own.args,
    ...(drive.readerFd === undefined ? [] : addFd(drive.readerFd, index + 1)),
    ...(drive.backings ?? []).flatMap(({ fd }, depth) => addFd(fd, BACKING_SET_BASE + depth)),
    ...['-blockdev', JSON.stringify(blockdev)],
    // A VM without a watcher would stay paused silently, so there the guest gets the write error.
    ...device({
      driver: 'virtio-blk-pci',
      drive: drive.serial,
      serial: drive.serial,
      werror: stopsWhenFull && !drive.readOnly ? 'enospc' : 'report',
      rerror: 'report',
      ...(drive.bootable ? { bootindex: 0 } : {}),
    }),
  ]
}

function backingNode(backings: readonly BackingSpec[]): { backing?: object } {
  let node: { backing?: object } = {}
  for (const [depth, { fd, format }] of [...backings.entries()].toReversed()) {
    const file = fileNode({ fd }, BACKING_SET_BASE + depth, true).node
    node = { backing: { driver: format, 'node-name': `below${depth}`, 'read-only': true, file, ...node } }
  }
  return node
}

function layerArgs(layers: readonly LayerSpec[] = []): string[] {
  return layers.flatMap(({ fd, readerFd }, index) =>
    [fd, readerFd].flatMap((each) => addFd(each, LAYER_SET_BASE + index)),
  )
}

function addFd(fd: number, set: number): string[] {
  return ['-add-fd', `fd=${checkFd(fd)},set=${set}`]
}

function overlayArgs({ overlayFd }: VmSpec): string[] {
  if (overlayFd === undefined) return []
  const { args, node } = fileNode({ fd: overlayFd }, OVERLAY_SET, false)
  return [...args, '-blockdev', JSON.stringify({ ...node, 'node-name': 'overlay' })]
}

function fileNode(source: DriveSource, set: number, readOnly: boolean) {
  const filename = 'fd' in source ? `/dev/fdset/${set}` : source.path
  return {
    args: 'fd' in source ? addFd(source.fd, set) : [],
    node: { driver: 'file', filename, 'read-only': readOnly, ...(readOnly ? {} : { discard: 'unmap' }) },
  }
}

function bootArgs({ boot, drives }: VmSpec): string[] {
  if (boot.kind === 'disk') {
    if (!drives.some((drive) => drive.bootable)) throw new TypeError('no drive is bootable')
    return []
  }
  return [
    ...['-kernel', boot.kernel],
    ...(boot.initramfs === undefined ? [] : ['-initrd', boot.initramfs]),
    ...['-append', boot.cmdline],
  ]
}

function device(properties: Readonly<Record<string, string | number>>): string[] {
  return ['-device', JSON.stringify(properties)]
}

function checkFd(fd: number): number {
  // 0, 1 and 2 are the standard streams, which QEMU refuses in descriptor sets too.
  if (!Number.isSafeInteger(fd) || fd < 3) throw new TypeError(`bad descriptor number: ${fd}`)
  return fd
}

function checkName(name: string): string {
  if (!/^[a-z0-9-]{1,60}$/.test(name)) throw new TypeError(`bad VM name: ${name}`)
  return name
}
