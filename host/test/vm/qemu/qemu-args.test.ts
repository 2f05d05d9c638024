import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { buildQemuArgs, layerFile, type VmSpec } from '../../../vm/qemu/qemu-args.ts'

const MIB = 1024 * 1024
const base: VmSpec = {
  name: 'caisson-vm-1',
  machine: 'q35',
  accelerator: 'tcg',
  cpus: 2,
  memoryBytes: 512 * MIB,
  seccomp: true,
  boot: { kind: 'kernel', kernel: '/vm/0', initramfs: '/vm/1', cmdline: 'console=ttyS0 quiet' },
  drives: [
    { serial: 'root', source: { fd: 7 }, format: 'raw', readOnly: true },
    { serial: 'scratch', source: { fd: 8 }, format: 'raw', readOnly: false },
  ],
  ports: [
    { name: 'caisson.rpc', fd: 5 },
    { name: 'caisson.http', fd: 6 },
  ],
  qmpFd: 3,
  consoleFd: 4,
}

/** Values that follow the option `name`. */
function valuesOf(args: readonly string[], name: string): string[] {
  return args.flatMap((arg, index) => (arg === name ? [args[index + 1] ?? ''] : []))
}

/** Parsed JSON values of an option; other values are left out. */
function jsonOf(args: readonly string[], name: string): Record<string, unknown>[] {
  return valuesOf(args, name)
    .filter((value) => value.startsWith('{'))
    .map((value) => JSON.parse(value) as Record<string, unknown>)
}

describe('buildQemuArgs', () => {
  it('attaches no network card, display or USB, and takes no default device [S1.14]', () => {
    const args = buildQemuArgs(base)
    for (const flag of ['-nodefaults', '-no-user-config', '-no-reboot']) expect(args).toContain(flag)
    expect(valuesOf(args, '-display')).toEqual(['none'])
    expect(valuesOf(args, '-vga')).toEqual(['none'])
    const drivers = jsonOf(args, '-device').map((device) => device.driver)
    expect(drivers).toEqual([
      'isa-serial',
      'virtio-rng-pci',
      'virtio-serial-pci',
      'virtserialport',
      'virtserialport',
      'virtio-blk-pci',
      'virtio-blk-pci',
    ])
    expect(args.join(' ')).not.toMatch(/-net|usb/)
  })

  it('denies QEMU to spawn, to raise its privileges and to change its limits [V.09]', () => {
    const sandbox = 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny'
    expect(valuesOf(buildQemuArgs(base), '-sandbox')).toEqual([sandbox])
    expect(buildQemuArgs({ ...base, seccomp: false })).not.toContain('-sandbox')
  })

  it('hands over monitor, console, ports and drives as descriptors', () => {
    const args = buildQemuArgs(base)
    expect(valuesOf(args, '-chardev')).toEqual([
      'socket,id=qmp,fd=3',
      'socket,id=console,fd=4',
      'socket,id=port0,fd=5',
      'socket,id=port1,fd=6',
    ])
    expect(valuesOf(args, '-add-fd')).toEqual(['fd=7,set=1', 'fd=8,set=2'])
    expect(jsonOf(args, '-blockdev').map((drive) => drive.file)).toMatchObject([
      { filename: '/dev/fdset/1', 'read-only': true },
      { filename: '/dev/fdset/2', 'read-only': false, discard: 'unmap' },
    ])
  })

  it('maps the memory of a template privately, and waits for its state [V.01]', () => {
    const memory = { kind: 'file', path: '/vm/2', share: false, readOnly: false } as const
    const args = buildQemuArgs({ ...base, memory, incoming: true })
    expect(jsonOf(args, '-object')).toContainEqual({
      'qom-type': 'memory-backend-file',
      'mem-path': '/vm/2',
      share: false,
      id: 'ram',
      size: 512 * MIB,
    })
    expect(valuesOf(args, '-incoming')).toEqual(['defer'])
    const readOnly = buildQemuArgs({ ...base, memory: { ...memory, readOnly: true } })
    expect(jsonOf(readOnly, '-object')).toContainEqual(
      expect.objectContaining({ readonly: true, rom: 'off' }),
    )
    const bad = { ...memory, share: true, readOnly: true }
    expect(() => buildQemuArgs({ ...base, memory: bad })).toThrow('read-only')
  })

  it('puts a drive of its own over a frozen one', () => {
    const drive = {
      serial: 'scratch',
      source: { fd: 8 },
      backings: [{ fd: 9, format: 'raw' }],
      format: 'qcow2',
      readOnly: false,
    } as const
    const args = buildQemuArgs({ ...base, drives: [drive], overlayFd: 10 })
    expect(valuesOf(args, '-add-fd')).toEqual(['fd=8,set=1', 'fd=9,set=1000', 'fd=10,set=100'])
    const [scratch, overlay] = jsonOf(args, '-blockdev')
    expect(scratch).toMatchObject({
      driver: 'qcow2',
      file: { filename: '/dev/fdset/1', 'read-only': false },
      backing: { driver: 'raw', 'read-only': true, file: { filename: '/dev/fdset/1000', 'read-only': true } },
    })
    expect(overlay).toMatchObject({ driver: 'file', 'node-name': 'overlay', filename: '/dev/fdset/100' })
  })

  it('puts a layer over others, and has further files for layers, each by two descriptors of one set [W.04]', () => {
    const drive = {
      serial: 'scratch',
      source: { fd: 8 },
      readerFd: 9,
      backings: [
        { fd: 10, format: 'qcow2' },
        { fd: 11, format: 'raw' },
      ],
      format: 'qcow2',
      readOnly: false,
    } as const
    const layers = [
      { fd: 12, readerFd: 13 },
      { fd: 14, readerFd: 15 },
    ]
    const args = buildQemuArgs({ ...base, drives: [drive], layers })
    expect(valuesOf(args, '-add-fd')).toEqual([
      ...['fd=8,set=1', 'fd=9,set=1', 'fd=10,set=1000', 'fd=11,set=1001'],
      ...['fd=12,set=200', 'fd=13,set=200', 'fd=14,set=201', 'fd=15,set=201'],
    ])
    expect(jsonOf(args, '-blockdev')).toMatchObject([
      {
        file: { filename: '/dev/fdset/1', locking: 'off' },
        backing: {
          driver: 'qcow2',
          'read-only': true,
          file: { filename: '/dev/fdset/1000', 'read-only': true },
          backing: { driver: 'raw', 'read-only': true, file: { filename: '/dev/fdset/1001' } },
        },
      },
    ])
    // No set is used twice, however long the row of layers is.
    const long = {
      ...drive,
      backings: Array.from({ length: 129 }, () => ({ fd: 10, format: 'qcow2' as const })),
    }
    const many = Array.from({ length: 24 }, () => ({ fd: 12, readerFd: 13 }))
    const sets = valuesOf(buildQemuArgs({ ...base, drives: [long], layers: many, overlayFd: 16 }), '-add-fd')
    expect(new Set(sets.map((value) => value.split('set=')[1])).size).toBe(1 + 129 + 24 + 1)
    expect(layerFile(1)).toMatchObject({ driver: 'file', filename: '/dev/fdset/201' })
  })

  it('gives the VM its memory and CPUs, the memory by a name that a template can replace [V.06]', () => {
    const args = buildQemuArgs(base)
    expect(valuesOf(args, '-machine')).toEqual(['q35,memory-backend=ram'])
    expect(jsonOf(args, '-object')[0]).toEqual({
      'qom-type': 'memory-backend-ram',
      id: 'ram',
      size: 512 * MIB,
    })
    expect(valuesOf(args, '-m')).toEqual(['512M'])
    expect(valuesOf(args, '-smp')).toEqual(['2'])
  })

  it('emulates with a bounded translation cache on all threads, and passes the host CPU through otherwise', () => {
    expect(valuesOf(buildQemuArgs(base), '-accel')).toEqual(['tcg,thread=multi,tb-size=256'])
    expect(valuesOf(buildQemuArgs(base), '-cpu')).toEqual(['max,-erms'])
    const accelerated = buildQemuArgs({ ...base, accelerator: 'kvm' })
    expect(valuesOf(accelerated, '-accel')).toEqual(['kvm'])
    expect(valuesOf(accelerated, '-cpu')).toEqual(['host'])
  })

  it('reports a full host disk to the guest instead of stopping the VM [V.06]', () => {
    const drives = jsonOf(buildQemuArgs(base), '-device').filter((device) => device.drive)
    expect(drives).toMatchObject([
      { serial: 'root', werror: 'report', rerror: 'report' },
      { serial: 'scratch', werror: 'report', rerror: 'report' },
    ])
  })

  it('stops a VM that a run watches when the host disk is full, so that the write is repeated later [V.06]', () => {
    const spec = { ...base, stopsWhenDiskFull: true }
    const drives = jsonOf(buildQemuArgs(spec), '-device').filter((device) => device.drive)
    expect(drives).toMatchObject([
      { serial: 'root', werror: 'report', rerror: 'report' },
      { serial: 'scratch', werror: 'enospc', rerror: 'report' },
    ])
  })

  it('boots a whole disk when there is no kernel of its own', () => {
    const disk = {
      serial: 'disk',
      source: { fd: 7 },
      format: 'qcow2',
      readOnly: true,
      bootable: true,
    } as const
    const args = buildQemuArgs({ ...base, boot: { kind: 'disk' }, drives: [disk] })
    expect(args).not.toContain('-kernel')
    expect(jsonOf(args, '-device').at(-1)).toMatchObject({ serial: 'disk', bootindex: 0 })
    expect(() => buildQemuArgs({ ...base, boot: { kind: 'disk' } })).toThrow('no drive is bootable')
  })

  it('lets no path become an option, whatever it contains', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', minLength: 1, maxLength: 100 }), (path) => {
        const plain = buildQemuArgs({ ...base, drives: [drive('/plain')] })
        const odd = buildQemuArgs({ ...base, drives: [drive(path)] })
        expect(odd).toHaveLength(plain.length)
        expect(odd.filter((arg, index) => arg !== plain[index])).toHaveLength(path === '/plain' ? 0 : 1)
        expect(jsonOf(odd, '-blockdev')[0]?.file).toMatchObject({ filename: path })
      }),
      { seed: 7, numRuns: 200 },
    )
    function drive(path: string) {
      return { serial: 'root', source: { path }, format: 'raw', readOnly: true } as const
    }
  })

  it.each<[string, Partial<VmSpec>]>([
    ['a name that is an option list', { name: 'a,debug-threads=on' }],
    ['a standard stream as descriptor', { qmpFd: 2 }],
    ['memory that is not whole MiB', { memoryBytes: 1.5 * MIB }],
    ['no CPU', { cpus: 0 }],
    ['an odd serial', { drives: [{ serial: 'a,b', source: { fd: 7 }, format: 'raw', readOnly: true }] }],
  ])('refuses %s', (_, change) => {
    expect(() => buildQemuArgs({ ...base, ...change })).toThrow(TypeError)
  })
})
