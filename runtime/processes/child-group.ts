/**
 * Programs that this process starts for a model: each leads a process group, so that what it started ends with it, also when
 * this process ends; it gets no variables of ours but a harmless few.
 */
import type { ChildProcess } from 'node:child_process'

const passedOn = [
  'PATH',
  'HOME',
  'USER',
  'LOGNAME',
  'SHELL',
  'TERM',
  'LANG',
  'LC_ALL',
  'TMPDIR',
  'SystemRoot',
  'TEMP',
]

/** Whether a child can lead a group of its own. */
export const hasGroups = process.platform !== 'win32'

/** Of our variables those that hold no secret. */
export function harmlessVariables(): Record<string, string> {
  return Object.fromEntries(
    passedOn.flatMap((name) => {
      const value = process.env[name]
      return value === undefined ? [] : [[name, value] as const]
    }),
  )
}

/** Signals the child, started with `detached: hasGroups`, and all of its group that is left. */
export function signalGroup(child: ChildProcess, signal: NodeJS.Signals): void {
  if (child.pid === undefined) return
  try {
    if (hasGroups) process.kill(-child.pid, signal)
    else child.kill(signal)
  } catch {
    // There is nobody left.
  }
}

const running = new Set<ChildProcess>()
let watching = false

/** Ends the child's group with this process, as long as the process ends in an orderly way. */
export function endWithUs(child: ChildProcess): void {
  running.add(child)
  child.once('close', () => running.delete(child))
  if (watching) return
  watching = true
  process.on('exit', () => {
    for (const each of running) signalGroup(each, 'SIGKILL')
  })
}
