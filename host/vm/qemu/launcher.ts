// The command that stands in front of QEMU and confines it as far as this machine allows. A pure function of what was
// found; finding it is `confinement.ts`.

import { homedir } from 'node:os'
import { dirname, sep } from 'node:path'
import type { Command } from '../../processes/held-process.ts'
import { TEMPLATE_GROUP } from './vm-user.ts'

/** The user that QEMU is within a user namespace of its own. */
export const NOBODY = 65_534

export interface Identity {
  readonly uid: number
  readonly gid: number
}

export type Launcher =
  | {
      /** Linux: own namespaces, nothing visible but /usr, the files named, and a few devices. */
      readonly kind: 'bubblewrap'
      readonly bwrap: string
      /**
       * Host root only: setpriv inside the sandbox really becomes this user.
       * Absent: a user namespace, in which QEMU is nobody and nobody has capabilities.
       */
      readonly drop?: Identity & { readonly setpriv: string }
    }
  | {
      /** Linux without bubblewrap: no new privileges; host root may drop to another user. */
      readonly kind: 'setpriv'
      readonly setpriv: string
      readonly drop?: Identity
    }
  /** Elsewhere: nothing. */
  | { readonly kind: 'bare' }

/** What surrounds QEMU, as it is told to the user. `none` where QEMU has no seccomp sandbox (macOS). */
export type Confinement = 'bubblewrap+seccomp' | 'seccomp' | 'none'

export interface HostFile {
  readonly path: string
  /** Default false. */
  readonly writable?: boolean
}

export interface LaunchRequest {
  /** Absolute path of QEMU with links resolved, and its arguments. */
  readonly qemu: string
  readonly args: readonly string[]
  /** Host files and folders that QEMU opens by path; under bubblewrap visible as {@link insidePath} says. */
  readonly files: readonly HostFile[]
  /** Device nodes it needs, such as /dev/kvm. */
  readonly devices: readonly string[]
  /** Descriptor on which bubblewrap reports the process id of its namespace's first process. */
  readonly infoFd?: number
}

/** The path under which QEMU sees `files[index]`. */
export function insidePath(launcher: Launcher, files: readonly HostFile[], index: number): string {
  return launcher.kind === 'bubblewrap' ? `/vm/${index}` : (files[index]?.path ?? '')
}

export function confinementOf(launcher: Launcher, seccomp: boolean): Confinement {
  if (!seccomp) return 'none'
  return launcher.kind === 'bubblewrap' ? 'bubblewrap+seccomp' : 'seccomp'
}

/** Puts the launcher in front of QEMU's own command line. */
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
    // Bubblewrap stays as the first process of the pid namespace: it is of the same user as the one outside, so the
    // signal of the parent's death may reach it, and its end ends QEMU, which may be of another.
    ...['--die-with-parent', '--unshare-pid'],
    ...['--unshare-net', '--unshare-ipc', '--unshare-uts', '--unshare-cgroup-try'],
    ...['--cap-drop', 'ALL', ...user, '--clearenv', '--chdir', '/'],
    ...['--ro-bind', '/usr', '/usr'],
    ...['lib', 'lib64', 'bin'].flatMap((name) => ['--symlink', `usr/${name}`, `/${name}`]),
    // Folders that bubblewrap makes on the way to a bind are its owner's alone, and QEMU may be another user.
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

/** The folder to show besides /usr so that a QEMU installed elsewhere finds its libraries and firmware. */
function programFolder(qemu: string): string[] {
  const folder = dirname(qemu)
  if (folder.startsWith('/usr/') || folder.startsWith('/nix/store/')) return []
  const prefix = dirname(folder)
  // ~/bin/qemu-system-x86_64 must not bring the whole home folder along.
  const tooWide = prefix === '/' || homedir() === prefix || homedir().startsWith(prefix + sep)
  return [tooWide ? folder : prefix]
}

/** `/opt/qemu` gives `/opt`; outermost first. */
function foldersAbove(path: string): string[] {
  const above = dirname(path)
  return above === '/' ? [] : [...foldersAbove(above), above]
}
