/**
 * Starts programs for a model. Each leads a process group, so that its descendants end with it and with this process.
 * It gets only harmless environment variables.
 */
import type { ChildProcess } from 'node:child_process'
import { Socket } from 'node:net'

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

/** Environment variables that hold no secret. */
export function harmlessVariables(): Record<string, string> {
  return Object.fromEntries(
    passedOn.flatMap((name) => {
      const value = process.env[name]
      return value === undefined ? [] : [[name, value] as const]
    }),
  )
}

/** Signals the child, started with `detached: hasGroups`, and the rest of its group. */
export function signalGroup(child: ChildProcess, signal: NodeJS.Signals): void {
  if (child.pid === undefined) return
  try {
    if (hasGroups) process.kill(-child.pid, signal)
    else child.kill(signal)
  } catch {
    // The group is empty.
  }
}

const running = new Set<ChildProcess>()
let watching = false

/** Ends the child's group when this process exits normally. */
export function endWithUs(child: ChildProcess): void {
  running.add(child)
  child.once('close', () => running.delete(child))
  if (watching) return
  watching = true
  process.on('exit', () => {
    for (const each of running) signalGroup(each, 'SIGKILL')
  })
}

/** Lets this process end while the child runs; whoever waits for the child has a timer of its own. */
export function detachFromLoop(child: ChildProcess): void {
  child.unref()
  for (const pipe of [child.stdin, child.stdout, child.stderr]) if (pipe instanceof Socket) pipe.unref()
}
