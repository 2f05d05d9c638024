// Which files running VMs have open or mapped, by inode, and which names the records of saved VMs hold. Where it cannot
// tell, everything counts as used: what is freed wrongly costs more than what is kept.

import { readdir, readFile, stat } from 'node:fs/promises'
import path from 'node:path'
import { judgeProcess } from '../processes/process-identity.ts'
import type { Folders } from '../state/folders.ts'
import { listVmRecords } from '../vm/vm-folder.ts'
import { lockedRuns } from '../workspace/run-lock.ts'

/** A record is small; a larger file is something else. */
const RECORD_MAX_BYTES = 256 * 1024
/** Below `vms` and `runs`: in the folder of a VM or run, or in that of the VM which the run saved. */
const RECORD_MAX_DEPTH = 2

export interface FolderUsage {
  /** A VM or a run of this state folder is alive: what is current may be opened at any moment. */
  readonly isBusy: boolean
  /** Whether a running VM has one of these inodes open, or a record names it. */
  uses(name: string, inodes: readonly string[]): boolean
}

/** @param folders of this user; VMs of other state folders are found by their processes (Linux) */
export async function findUsage(folders: Pick<Folders, 'vms' | 'runs' | 'locks'>): Promise<FolderUsage> {
  const records = await listVmRecords(folders.vms)
  const verdicts = await Promise.all(records.map(({ host }) => judgeProcess(host)))
  const hasLiveVm = verdicts.some((verdict) => verdict !== 'dead')
  const opened = process.platform === 'linux' ? await findOpened() : undefined
  const texts = await readRecords([folders.vms, folders.runs])
  const isUnknown = opened === undefined ? hasLiveVm : opened.isUnknown || verdicts.includes('unknown')
  return {
    isBusy: hasLiveVm || (await lockedRuns(folders.locks)).size > 0 || isUnknown,
    uses: (name, inodes) =>
      isUnknown ||
      inodes.some((inode) => opened?.inodes.has(inode) === true) ||
      texts.some((text) => text.includes(name)),
  }
}

/** Inodes that the processes of VMs have open or mapped; unknown when one of them cannot be looked into. */
async function findOpened(): Promise<{ inodes: ReadonlySet<string>; isUnknown: boolean }> {
  const inodes = new Set<string>()
  let isUnknown = false
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  for (const pid of pids) {
    const commandLine = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
    if (!commandLine.split('\0').some((word) => /^caisson-vm-[0-9a-f]{12}$/.test(word))) continue
    try {
      for (const name of await readdir(`/proc/${pid}/fd`)) {
        const found = await stat(`/proc/${pid}/fd/${name}`).catch(() => undefined)
        if (found?.isFile()) inodes.add(String(found.ino))
      }
      // proc(5): address, permissions, offset, device, inode, path.
      for (const [, inode = ''] of (await readFile(`/proc/${pid}/maps`, 'utf8')).matchAll(
        /^\S+ \S+ \S+ \S+ ([1-9]\d*)/gm,
      )) {
        inodes.add(inode)
      }
    } catch {
      // Gone meanwhile, or another user's, whose VMs have a cache of their own.
      const owner = (await stat(`/proc/${pid}`).catch(() => undefined))?.uid
      if (owner !== undefined && owner === process.getuid?.()) isUnknown = true
    }
  }
  return { inodes, isUnknown }
}

/** A VM that was saved to disk is no process; the records beside it, or in its own folder, name what it needs to wake. */
async function readRecords(folders: readonly string[]): Promise<string[]> {
  const texts: string[] = []
  const readBelow = async (folder: string, depth: number): Promise<void> => {
    for (const entry of await readdir(folder, { withFileTypes: true }).catch(() => [])) {
      const place = path.join(folder, entry.name)
      if (entry.isDirectory()) {
        if (depth < RECORD_MAX_DEPTH) await readBelow(place, depth + 1)
      } else if (depth > 0 && entry.isFile() && entry.name.endsWith('.json')) {
        const size = (await stat(place).catch(() => undefined))?.size ?? Number.POSITIVE_INFINITY
        if (size <= RECORD_MAX_BYTES) texts.push(await readFile(place, 'utf8').catch(() => ''))
      }
    }
  }
  for (const folder of folders) await readBelow(folder, 0)
  return texts
}
