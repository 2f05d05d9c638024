// Tests how far QEMU can be confined on this machine, since bubblewrap exists on many systems that refuse its
// namespaces. The result is a launcher; see `launcher.ts`.

import { once } from 'node:events'
import { stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { text } from 'node:stream/consumers'
import type { Command } from '../../processes/held-process.ts'
import { killHeld, spawnHeld } from '../../processes/held-process.ts'
import { describeLeftOut, searchProgram } from '../../processes/programs.ts'
import { VmError } from '../vm-error.ts'
import { confinementOf, type Launcher, wrapCommand } from './launcher.ts'
import { drawVmUser, VM_USERS } from './vm-user.ts'

const TRIAL_DEADLINE_MS = 10_000

/**
 * `auto` uses the best available; `require` fails without bubblewrap; `off` is for debugging QEMU: its own seccomp
 * sandbox stays on.
 */
export type ConfineMode = 'auto' | 'require' | 'off'

/** Launchers of this machine that were able to start QEMU. */
export interface ConfinementFacts {
  /** Best first, never empty. */
  readonly launchers: readonly Launcher[]
  /** Why bubblewrap is not among them. */
  readonly reason?: string
}

/** Tries each launcher with `qemu --version`. Takes about 50 ms. */
export async function probeConfinement(qemu: string): Promise<ConfinementFacts> {
  if (process.platform !== 'linux') {
    return { launchers: [{ kind: 'bare' }], reason: 'bubblewrap exists on Linux only' }
  }
  const searched = await searchProgram('bwrap')
  const bwrap = searched.path
  const setpriv = (await searchProgram('setpriv')).path
  const launchers: Launcher[] = []
  const reasons: string[] =
    bwrap === undefined ? [`bubblewrap was not found${describeLeftOut(searched)}`] : []
  for (const candidate of bubblewrapCandidates(bwrap, setpriv)) {
    const failure = await tryLauncher(candidate, qemu)
    if (failure === undefined) launchers.push(candidate)
    else reasons.push(failure)
  }
  const bare: Launcher = setpriv === undefined ? { kind: 'bare' } : { kind: 'setpriv', setpriv }
  return launchers.length > 0
    ? { launchers: [...launchers, bare] }
    : { launchers: [bare], reason: reasons.join('; ') }
}

function bubblewrapCandidates(bwrap: string | undefined, setpriv: string | undefined): Launcher[] {
  if (bwrap === undefined) return []
  const mapped: Launcher = { kind: 'bubblewrap', bwrap }
  const isRoot = process.geteuid?.() === 0
  if (!isRoot || setpriv === undefined) return [mapped]
  return [{ ...mapped, drop: { uid: VM_USERS.first, gid: VM_USERS.first, setpriv } }, mapped]
}

async function tryLauncher(launcher: Launcher, qemu: string): Promise<string | undefined> {
  const command = wrapCommand(launcher, { qemu, args: ['--version'], files: [], devices: [] })
  try {
    const { code, stderr } = await runHeld(command)
    if (code === 0) return undefined
    return stderr.trim().split('\n').at(-1)?.slice(0, 200) || 'bubblewrap did not start QEMU'
  } catch (error) {
    return error instanceof Error ? error.message.slice(0, 200) : 'no process could be started'
  }
}

/** Returns its exit status; null if it had to be killed. @throws when it could not be started */
async function runHeld(command: Command): Promise<{ code: number | null; stderr: string }> {
  const child = spawnHeld(command)
  const timer = setTimeout(() => killHeld(child), TRIAL_DEADLINE_MS)
  try {
    const [stderr] = await Promise.all([child.stderr ? text(child.stderr) : '', once(child, 'exit')])
    return { code: child.exitCode, stderr }
  } finally {
    clearTimeout(timer)
  }
}

interface LauncherRequest {
  readonly mode: ConfineMode
  readonly seccomp: boolean
  /** Host files that QEMU opens by path. */
  readonly files: readonly string[]
  /** Device nodes that QEMU opens. */
  readonly devices: readonly string[]
}

/**
 * The best launcher that lets QEMU open the given files; one that changes the user uses a new user for each VM.
 * @throws VmError `confinement_unavailable` in mode `require` without bubblewrap
 */
export async function chooseLauncher(facts: ConfinementFacts, requested: LauncherRequest): Promise<Launcher> {
  const allowed =
    requested.mode === 'off' ? facts.launchers.filter(({ kind }) => kind !== 'bubblewrap') : facts.launchers
  for (const launcher of allowed) {
    const usable = await fitLauncher(launcher, requested)
    if (!usable) continue
    if (requested.mode === 'require' && confinementOf(usable, requested.seccomp) !== 'bubblewrap+seccomp')
      break
    return usable
  }
  throw new VmError({
    kind: 'confinement_unavailable',
    phase: 'prepare',
    expected: 'QEMU in a bubblewrap sandbox, as required',
    seen: facts.reason ?? 'no sandbox for QEMU',
    remedy: 'Install bubblewrap and allow unprivileged user namespaces, or omit --qemu-sandbox require.',
  })
}

/** A launcher that changes the user is suitable only if that user can open the files and devices. */
async function fitLauncher(launcher: Launcher, requested: LauncherRequest): Promise<Launcher | undefined> {
  if (launcher.kind === 'setpriv' && process.geteuid?.() === 0) {
    const user = await drawVmUser()
    const dropped: Launcher = { ...launcher, drop: { uid: user, gid: user } }
    const readable = await Promise.all([...requested.files, ...requested.devices].map(isOpenToAll))
    return readable.every(Boolean) ? dropped : launcher
  }
  if (launcher.kind !== 'bubblewrap' || launcher.drop === undefined) return launcher
  // Bubblewrap binds the files as root, so only the files' own modes matter, not those of their parent folders.
  const modes = await Promise.all(requested.files.map(async (path) => (await stat(path)).mode))
  if (!modes.every((mode) => (mode & 0o004) !== 0)) return undefined
  const groups = await Promise.all(requested.devices.map(deviceGroup))
  if (groups.includes(undefined)) return undefined
  const uid = await drawVmUser()
  const gid = groups.find((group) => typeof group === 'number') ?? uid
  return { ...launcher, drop: { ...launcher.drop, uid, gid } }
}

/** The group that gives any user read and write access to the device; undefined if only its owner has access. */
async function deviceGroup(path: string): Promise<number | 'any' | undefined> {
  const { mode, gid } = await stat(path)
  if ((mode & 0o006) === 0o006) return 'any'
  return (mode & 0o060) === 0o060 && gid !== 0 ? gid : undefined
}

async function isOpenToAll(path: string): Promise<boolean> {
  const { mode } = await stat(path)
  const needed = path.startsWith('/dev/') ? 0o006 : 0o004
  if ((mode & needed) !== needed) return false
  for (let folder = dirname(path); ; folder = dirname(folder)) {
    if (((await stat(folder)).mode & 0o001) === 0) return false
    if (folder === dirname(folder)) return true
  }
}
