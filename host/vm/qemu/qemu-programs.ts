// QEMU on this machine: where it is and which version. Tells a change of a program from its stamp; runs nothing but
// `--version`.

import { execFile } from 'node:child_process'
import { stat } from 'node:fs/promises'
import { promisify } from 'node:util'
import { findProgram } from '../../processes/programs.ts'

const run = promisify(execFile)
const VERSION_DEADLINE_MS = 10_000

/** The program that runs x86-64 guests. */
export const QEMU = 'qemu-system-x86_64'

/** Its absolute path; undefined when there is none that may be run. */
export function findQemu(): Promise<string | undefined> {
  return findProgram(QEMU)
}

/** The version QEMU prints, such as `7.2.22`; undefined when it prints none or does not run. */
export async function readQemuVersion(qemu: string): Promise<string | undefined> {
  try {
    const { stdout } = await run(qemu, ['--version'], { timeout: VERSION_DEADLINE_MS, env: {} })
    return /version (\d+(?:\.\d+)+)/.exec(stdout)?.[1]
  } catch {
    return undefined
  }
}

/** A text that changes whenever the file is replaced or modified; `absent` when it does not exist. */
export async function stampFile(path: string | undefined): Promise<string> {
  if (path === undefined) return 'absent'
  try {
    const { dev, ino, size, mtimeMs, ctimeMs, mode, gid } = await stat(path)
    return [path, dev, ino, size, mtimeMs, ctimeMs, mode, gid].join(':')
  } catch {
    return 'absent'
  }
}
