// QEMU's command line as a pure function of a typed description of the VM.
// What a user or a path can influence goes in as JSON or as a descriptor number, so that a comma in a path never
// becomes an option; there is no way to describe a network card, a USB controller or a display.

/** What executes the guest's instructions. Only kvm and hvf are security boundaries in QEMU's own policy. */
export type Accelerator = 'kvm' | 'hvf' | 'tcg'

export type DriveSource =
  /** An open descriptor that QEMU inherits under this number. */
  | { readonly fd: number }
  /** A path as QEMU sees it. */
  | { readonly path: string }

export interface DriveSpec {
  /** The name by which the guest finds it in `serial` files of /sys/block: 1 to 20 of a-z, 0-9 and `-`. */
  readonly serial: string
  readonly source: DriveSource
  readonly format: 'raw' | 'qcow2'
  readonly readOnly: boolean
  /** Whether the firmware boots from it (only with `boot.kind` disk). */
  readonly bootable?: boolean
}

export type BootSpec =
  | {
      readonly kind: 'kernel'
      /** Paths as QEMU sees them. */
      readonly kernel: string
      /** Absent: the kernel boots without one and panics for want of a root (the trial boot). */
      readonly initramfs?: string
      readonly cmdline: string
    }
  /** The firmware boots from the drive marked bootable. */
  | { readonly kind: 'disk' }

export interface PortSpec {
  /** Name in the guest, such as `caisson.rpc`. */
  readonly name: string
  /** Descriptor of the host's stream socket. */
  readonly fd: number
}

export interface VmSpec {
  /** Shown in the process list; the sweep finds leftovers by it. */
  readonly name: string
  readonly machine: 'q35'
  readonly accelerator: Accelerator
  readonly cpus: number
  /** A multiple of 1 MiB. */
  readonly memoryBytes: number
  /** Whether this QEMU has the seccomp sandbox (Linux). */
  readonly seccomp: boolean
  readonly boot: BootSpec
  readonly drives: readonly DriveSpec[]
  readonly ports: readonly PortSpec[]
  /** Descriptors of the monitor's and the serial console's stream sockets. */
  readonly qmpFd: number
  readonly consoleFd: number
}

/** Translated code per VM in MiB: 64 keeps a VM small, and an agent's working set fits. */
const TRANSLATION_CACHE_MIB = 64

/** Arguments for `qemu-system-*`, without the program's name. @throws TypeError when the description is misused */
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
    ...spec.drives.flatMap((drive, index) => driveArgs(drive, index)),
    ...bootArgs(spec),
  ]
}

function sandboxArgs(seccomp: boolean): string[] {
  return seccomp
    ? ['-sandbox', 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny']
    : []
}

function machineArgs({ machine, accelerator, cpus, memoryBytes }: VmSpec): string[] {
  const mebibytes = memoryBytes / (1024 * 1024)
  if (!Number.isSafeInteger(mebibytes) || mebibytes < 1) throw new TypeError('memoryBytes must be whole MiB')
  if (!Number.isSafeInteger(cpus) || cpus < 1) throw new TypeError('cpus must be a positive whole number')
  const acceleration =
    accelerator === 'tcg' ? `tcg,thread=multi,tb-size=${TRANSLATION_CACHE_MIB}` : accelerator
  return [
    // The backend's id is part of the migration format: whatever restores this VM must name it the same.
    ...['-machine', `${machine},memory-backend=ram`, '-m', `${mebibytes}M`],
    ...['-object', JSON.stringify({ 'qom-type': 'memory-backend-ram', id: 'ram', size: memoryBytes })],
    ...['-accel', acceleration, '-cpu', accelerator === 'tcg' ? 'max' : 'host', '-smp', String(cpus)],
  ]
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

function driveArgs(drive: DriveSpec, index: number): string[] {
  if (!/^[a-z0-9-]{1,20}$/.test(drive.serial)) throw new TypeError(`bad drive serial: ${drive.serial}`)
  const set = index + 1
  const file = 'fd' in drive.source ? `/dev/fdset/${set}` : drive.source.path
  const space = drive.readOnly ? {} : { discard: 'unmap', 'detect-zeroes': 'unmap' }
  const blockdev = {
    driver: drive.format,
    'node-name': drive.serial,
    'read-only': drive.readOnly,
    ...space,
    file: {
      driver: 'file',
      filename: file,
      'read-only': drive.readOnly,
      ...(drive.readOnly ? {} : { discard: 'unmap' }),
    },
  }
  return [
    ...('fd' in drive.source ? ['-add-fd', `fd=${checkFd(drive.source.fd)},set=${set}`] : []),
    ...['-blockdev', JSON.stringify(blockdev)],
    // By default QEMU stops the whole VM when the host's disk is full; the guest shall see the error instead.
    ...device({
      driver: 'virtio-blk-pci',
      drive: drive.serial,
      serial: drive.serial,
      werror: 'report',
      rerror: 'report',
      ...(drive.bootable ? { bootindex: 0 } : {}),
    }),
  ]
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
  // 0, 1 and 2 are the standard streams, which QEMU refuses in an fd set as well.
  if (!Number.isSafeInteger(fd) || fd < 3) throw new TypeError(`bad descriptor number: ${fd}`)
  return fd
}

function checkName(name: string): string {
  if (!/^[a-z0-9-]{1,60}$/.test(name)) throw new TypeError(`bad VM name: ${name}`)
  return name
}
