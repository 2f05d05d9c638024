// A child process that begins, and lives, only as long as this process holds a pipe to it: whatever kills this process,
// at whatever moment, ends the child with all that it started. It refuses nothing else; what runs is the caller's.

import { type ChildProcess, spawn } from 'node:child_process'
import type { Duplex } from 'node:stream'

/** The child's end of the pipe. One digit: the shells of some systems can name no other. */
const HOLD_FD = 3
/** The number under which the child gets the first of the descriptors beyond the standard streams. */
export const FIRST_FD = HOLD_FD + 1

/**
 * The shell becomes the command, but first it leaves a watcher in its process group, which reads the pipe and, at its
 * end, kills the group with itself. A host that died before any of this is a pipe that has ended; and the kernel lets
 * no process leave by a fork while its group is being killed. So it does not matter how far the command has come, as
 * it does with parent-death signals: those serve from the moment at which a program has asked for them, and a program
 * that has asked may have children that have not yet.
 * `$$` is the shell that leads the group, in the watcher as well. What the watcher cannot close, for want of a name, it
 * keeps open until it ends; so with stderr, whose end tells when that is.
 */
const HOLD = [
  `(exec ${[4, 5, 6, 7, 8, 9].map((fd) => `${fd}<&-`).join(' ')}`,
  `read -r _ <&${HOLD_FD}`,
  `kill -9 -$$) >/dev/null & exec "$@" ${HOLD_FD}<&-`,
].join('; ')

/** A program and its arguments. */
export interface Command {
  readonly file: string
  readonly args: readonly string[]
}

export type StdioEntry = 'ignore' | 'pipe' | number

/** What a command gets beside its descriptors; absent: an empty environment, `/`, no standard input and no standard output. */
interface HeldOptions {
  readonly env?: Readonly<Record<string, string>>
  readonly cwd?: string
  /** Standard input and output are pipes. */
  readonly talks?: boolean
}

/**
 * Starts the command in a session of its own. Its stderr is a pipe that ends with the last process of it;
 * `more` are further descriptors, from
 * {@link FIRST_FD} on: the first six are of the command alone, so that streams among them end when it does.
 * Where the watcher is killed, the command ends.
 * @throws when there are no descriptors left; whatever else keeps it from starting is reported as the child's `error`
 */
export function spawnHeld(
  { file, args }: Command,
  more: readonly StdioEntry[] = [],
  { env = {}, cwd = '/', talks = false }: HeldOptions = {},
): ChildProcess {
  const standard = talks ? 'pipe' : 'ignore'

  const child = spawn('/bin/sh', ['-c', HOLD, 'sh', file, ...args], {
    // Its own session: Ctrl-C in the terminal reaches the host, which decides.
    detached: true,
    env,
    cwd,
    stdio: [standard, standard, 'pipe', 'pipe', ...more],
  })
  // Without these listeners a child that could not be started, or dies in the middle of a write, would end this process.
  child.on('error', () => {})
  const stdio = child.stdio as ChildProcess['stdio'] | undefined
  if (stdio === undefined) throw new Error('spawn: no file descriptors are left (EMFILE)')
  for (const each of stdio) each?.on('error', () => {})
  const hold = stdio[HOLD_FD] as Duplex
  // Whatever is left of the group then, the watcher at least, ends as well.
  child.once('exit', () => hold.destroy())
  hold.resume().once('close', () => killHeld(child))
  return child
}

/** Ends the child and all that it started at the same moment. Harmless after its end. */
export function killHeld(child: ChildProcess): void {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return
  try {
    process.kill(-child.pid, 'SIGKILL')
  } catch {
    child.kill('SIGKILL')
  }
}
