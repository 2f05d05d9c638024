import { describe, expect, it } from 'vitest'
import { confinementOf, insidePath, type Launcher, wrapCommand } from '../../../vm/qemu/launcher.ts'

const request = {
  qemu: '/usr/bin/qemu-system-x86_64',
  args: ['-name', 'x'],
  files: [{ path: '/home/me/.cache/caisson/vmlinuz' }, { path: '/home/me/.cache/caisson/initramfs' }],
  devices: ['/dev/kvm'],
  infoFd: 5,
}
const own = [request.qemu, ...request.args]
const bubblewrap: Launcher = { kind: 'bubblewrap', bwrap: '/usr/bin/bwrap' }

describe('wrapCommand', () => {
  it('shows QEMU nothing but /usr, its boot files and its devices, without network, user or environment [V.09]', () => {
    const { file, args } = wrapCommand(bubblewrap, request)
    expect(file).toBe('/usr/bin/bwrap')
    for (const flag of [
      '--die-with-parent',
      '--unshare-pid',
      '--unshare-net',
      '--unshare-user',
      '--clearenv',
    ]) {
      expect(args).toContain(flag)
    }
    expect(args.slice(args.indexOf('--uid'), args.indexOf('--uid') + 2)).toEqual(['--uid', '65534'])
    const binds = args.flatMap((arg, index) => (/^--(ro-|dev-)?bind$/.test(arg) ? [args[index + 1]] : []))
    expect(binds).toEqual(['/usr', '/dev/kvm', ...request.files.map(({ path }) => path)])
    expect(args).not.toContain('--bind')
    expect(args.slice(args.indexOf('--') + 1)).toEqual(own)
    expect(insidePath(bubblewrap, request.files, 1)).toBe('/vm/1')
  })

  it('lets QEMU write to a file only where it must [V.09]', () => {
    const files = [...request.files, { path: '/home/me/.cache/caisson/ram.bin', writable: true }]
    const { args } = wrapCommand(bubblewrap, { ...request, files })
    const at = args.indexOf('--bind')
    expect(args.slice(at, at + 3)).toEqual(['--bind', '/home/me/.cache/caisson/ram.bin', '/vm/2'])
    expect(args.lastIndexOf('--bind')).toBe(at)
  })

  it('becomes another user for good where the host is root [V.09]', () => {
    const drop = { uid: 65534, gid: 108, setpriv: '/usr/bin/setpriv' }
    const { args } = wrapCommand({ ...bubblewrap, drop }, request)
    expect(args).not.toContain('--unshare-user')
    const inner = args.slice(args.indexOf('--') + 1)
    expect(inner.slice(0, 3)).toEqual(['/usr/bin/setpriv', '--reuid=65534', '--regid=108'])
    expect(inner).toContain('--bounding-set=-all')
    // The memory of templates is of that group, and of nothing else.
    expect(inner).toContain('--groups=2013265920')
    expect(inner.slice(-own.length)).toEqual(own)
  })

  it('shows a QEMU outside of /usr its own folder, but never a home folder [V.09]', () => {
    const at = (qemu: string) => wrapCommand(bubblewrap, { ...request, qemu }).args.join(' ')
    expect(at('/opt/qemu/bin/qemu-system-x86_64')).toContain('--ro-bind /opt/qemu /opt/qemu')
    const home = process.env.HOME ?? '/root'
    expect(at(`${home}/bin/qemu-system-x86_64`)).not.toContain(`--ro-bind ${home} `)
  })

  it('ties QEMU to its parent where bubblewrap is missing [V.06]', () => {
    const { file, args } = wrapCommand({ kind: 'setpriv', setpriv: '/usr/bin/setpriv' }, request)
    expect(file).toBe('/usr/bin/setpriv')
    expect(args).toEqual(['--nnp', '--pdeathsig', 'KILL', '--', ...own])
  })

  it('says honestly what surrounds QEMU [V.09]', () => {
    expect(confinementOf(bubblewrap, true)).toBe('bubblewrap+seccomp')
    expect(confinementOf({ kind: 'setpriv', setpriv: '/x' }, true)).toBe('seccomp')
    expect(confinementOf({ kind: 'bare' }, false)).toBe('none')
  })
})
