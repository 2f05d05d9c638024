// Finds the programs of this machine that a VM needs (QEMU, bubblewrap, setpriv) and tells a change of one from its
// stamp. It looks along PATH only and runs nothing but `--version`.

import { execFile } from 'node:child_process'
import { access, constants, realpath, stat } from 'node:fs/promises'
import { delimiter, isAbsolute, join } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)
const VERSION_DEADLINE_MS = 10_000

/** Absolute path of the first executable `name` on PATH, links resolved; undefined when there is none. */
export async function findProgram(name: string): Promise<string | undefined> {
  const folders = (process.env.PATH ?? '').split(delimiter).filter((folder) => isAbsolute(folder))
  // Where administrators' programs are and a plain user's PATH may not be.
  for (const folder of [...folders, '/usr/bin', '/usr/sbin', '/usr/local/bin']) {
    try {
      const path = await realpath(join(folder, name))
      await access(path, constants.X_OK)
      if ((await stat(path)).isFile()) return path
    } catch {
      // Not in this folder.
    }
  }
  return undefined
}

/** QEMU for x86-64 guests. @returns undefined when it is not installed */
export function findQemu(): Promise<string | undefined> {
  return findProgram('qemu-system-x86_64')
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
