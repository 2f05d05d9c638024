// Builds the command in front of QEMU that confines it as far as this machine allows. A pure function of the facts from
// `confinement.ts`.

import { homedir } from 'node:os'
import { dirname, sep } from 'node:path'
import type { Command } from '../../processes/held-process.ts'
import { TEMPLATE_GROUP } from './vm-user.ts'

/** QEMU's user inside its own user namespace. */
const NOBODY = 65_534

interface Identity {
  readonly uid: number
  readonly gid: number
}

export type Launcher =
  | {
      /** Linux: own namespaces; only /usr, the named files and a few devices are visible. */
      readonly kind: 'bubblewrap'
      readonly bwrap: string
      /**
       * Only when the host is root: setpriv inside the sandbox switches to this user. Absent: a user namespace with the
       * user nobody and no capabilities.
       */
      readonly drop?: Identity & { readonly setpriv: string }
    }
  | {
      /** Linux without bubblewrap: no new privileges; a root host may switch to another user. */
      readonly kind: 'setpriv'
      readonly setpriv: string
      readonly drop?: Identity
    }
  /** Other systems: no launcher. */
  | { readonly kind: 'bare' }

/** QEMU's confinement, as shown to the user. `none` if QEMU has no seccomp sandbox (macOS). */
export type Confinement = 'bubblewrap+seccomp' | 'seccomp' | 'none'

export interface HostFile {
  readonly path: string
  /** Default false. */
  readonly writable?: boolean
}

interface LaunchRequest {
  /** Absolute path of QEMU without symbolic links, and its arguments. */
  readonly qemu: string
  readonly args: readonly string[]
  /** Host files and folders that QEMU opens by path; under bubblewrap visible at {@link insidePath}. */
  readonly files: readonly HostFile[]
  /** Device nodes that QEMU needs, such as /dev/kvm. */
  readonly devices: readonly string[]
  /** Descriptor on which bubblewrap reports the process id of its namespace's first process. */
  readonly infoFd?: number
}

/** The path of `files[index]` as QEMU sees it. */
export function insidePath(launcher: Launcher, files: readonly HostFile[], index: number): string {
  return launcher.kind === 'bubblewrap' ? `/vm/${index}` : (files[index]?.path ?? '')
}

export function confinementOf(launcher: Launcher, seccomp: boolean): Confinement {
  if (!seccomp) return 'none'
  return launcher.kind === 'bubblewrap' ? 'bubblewrap+seccomp' : 'seccomp'
}

/** Puts the launcher in front of QEMU's command line. */
export function wrapCommand(launcher: Launcher, request: LaunchRequest): Command {
  const own = [request.qemu, ...request.args]
  if (launcher.kind === 'bare') return { file: request.qemu, args: request.args }
  if (launcher.kind === 'setpriv')
    return { file: launcher.setpriv, args: [...setprivArgs(launcher.drop), ...own] }
  const { drop } = launcher
  const inner = drop ? [drop.setpriv, ...setprivArgs(drop), ...own] : own
  return { file: launcher.bwrap, args: [...bubblewrapArgs(request, drop !== undefined), '--', ...inner] }
}

function setprivArgs(drop: Identity | undefined): string[] {
  const identity = drop
    ? [
        `--reuid=${drop.uid}`,
        `--regid=${drop.gid}`,
        `--groups=${TEMPLATE_GROUP}`,
        '--inh-caps=-all',
        '--bounding-set=-all',
      ]
    : []
  return [...identity, '--nnp', '--pdeathsig', 'KILL', '--']
}

function bubblewrapArgs(request: LaunchRequest, asRoot: boolean): string[] {
  const program = programFolder(request.qemu)
  const user = asRoot
    ? // setpriv inside needs these three to give up all of them.
      ['CAP_SETUID', 'CAP_SETGID', 'CAP_SETPCAP'].flatMap((capability) => ['--cap-add', capability])
    : ['--unshare-user', '--uid', String(NOBODY), '--gid', String(NOBODY)]
  return [
    // Bubblewrap stays the first process of the pid namespace. It has the same user as its parent, so it gets the
    // parent-death signal, and its end also ends a QEMU of another user.
    ...['--die-with-parent', '--unshare-pid'],
    ...['--unshare-net', '--unshare-ipc', '--unshare-uts', '--unshare-cgroup-try'],
    ...['--cap-drop', 'ALL', ...user, '--clearenv', '--chdir', '/'],
    ...['--ro-bind', '/usr', '/usr'],
    ...['lib', 'lib64', 'bin'].flatMap((name) => ['--symlink', `usr/${name}`, `/${name}`]),
    // Bubblewrap makes parent folders of a bind private to their owner, but QEMU may be another user.
    ...['/etc', '/nix', '/vm', ...program.flatMap(foldersAbove)].flatMap((path) => [
      '--perms',
      '0755',
      '--dir',
      path,
    ]),
    ...['/etc/ld.so.cache', '/etc/alternatives', '/nix/store'].flatMap((path) => [
      '--ro-bind-try',
      path,
      path,
    ]),
    ...program.flatMap((path) => ['--ro-bind', path, path]),
    ...['--dev', '/dev', ...request.devices.flatMap((path) => ['--dev-bind', path, path])],
    ...request.files.flatMap(({ path, writable }, index) => [
      writable ? '--bind' : '--ro-bind',
      path,
      `/vm/${index}`,
    ]),
    ...(request.infoFd === undefined ? [] : ['--info-fd', String(request.infoFd)]),
  ]
}

/** The folder to show besides /usr, so that a QEMU installed elsewhere finds its libraries and firmware. */
function programFolder(qemu: string): string[] {
  const folder = dirname(qemu)
  if (folder.startsWith('/usr/') || folder.startsWith('/nix/store/')) return []
  const prefix = dirname(folder)
  // ~/bin/qemu-system-x86_64 must not expose the whole home folder.
  const tooWide = prefix === '/' || homedir() === prefix || homedir().startsWith(prefix + sep)
  return [tooWide ? folder : prefix]
}

/** `/opt/qemu` gives `/opt`; outermost first. */
function foldersAbove(path: string): string[] {
  const above = dirname(path)
  return above === '/' ? [] : [...foldersAbove(above), above]
}
