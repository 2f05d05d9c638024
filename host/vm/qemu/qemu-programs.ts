// Finds QEMU on this machine and its version. Detects a changed program by its stamp; runs only `--version`.

import { execFile } from 'node:child_process'
import { stat } from 'node:fs/promises'
import { promisify } from 'node:util'
import { findProgram } from '../../processes/programs.ts'

const run = promisify(execFile)
const VERSION_DEADLINE_MS = 10_000

/** The program that runs x86-64 guests. */
export const QEMU = 'qemu-system-x86_64'

/** Its absolute path; undefined if there is no executable one. */
export function findQemu(): Promise<string | undefined> {
  return findProgram(QEMU)
}

/** The version that QEMU prints, such as `7.2.22`; undefined if it prints none or does not run. */
export async function readQemuVersion(qemu: string): Promise<string | undefined> {
  try {
    const { stdout } = await run(qemu, ['--version'], { timeout: VERSION_DEADLINE_MS, env: {} })
    return /version (\d+(?:\.\d+)+)/.exec(stdout)?.[1]
  } catch {
    return undefined
  }
}

/** A text that changes whenever the file is replaced or modified; `absent` if it does not exist. */
export async function stampFile(path: string | undefined): Promise<string> {
  if (path === undefined) return 'absent'
  try {
    const { dev, ino, size, mtimeMs, ctimeMs, mode, gid } = await stat(path)
    return [path, dev, ino, size, mtimeMs, ctimeMs, mode, gid].join(':')
  } catch {
    return 'absent'
  }
}
