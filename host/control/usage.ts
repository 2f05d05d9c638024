/** What one VM uses of this machine, as its kernel counts it: QEMU's process and the file of the scratch disk. */
import { execFile } from 'node:child_process'
import { readFile, stat } from 'node:fs/promises'
import { promisify } from 'node:util'
import type { VmUsage } from './messages.ts'

/** Clock ticks of `/proc` a second: 100 on every architecture of Linux, whatever the kernel's own frequency. */
const ticksPerSecond = 100

/** @param disk path of the scratch disk; absent or gone: no bytes. Null where the process is gone */
export async function readUsage(pid: number, disk?: string): Promise<VmUsage | null> {
  try {
    const counted = process.platform === 'linux' ? await readProc(pid) : await readPs(pid)
    const blocks = disk === undefined ? 0 : ((await stat(disk).catch(() => null))?.blocks ?? 0)
    return { atMs: Date.now(), ...counted, diskBytes: blocks * 512 }
  } catch {
    return null
  }
}

/** Share of the CPU between two readings; 100 is one processor of the host. Null without an earlier one. */
export function cpuPercentBetween(before: VmUsage | null | undefined, now: VmUsage | null): number | null {
  const elapsedMs = before && now ? now.atMs - before.atMs : 0
  if (!before || !now || elapsedMs <= 0) return null
  return Math.max(0, Math.round(((now.cpuMs - before.cpuMs) / elapsedMs) * 1000) / 10)
}

type Counted = Pick<VmUsage, 'cpuMs' | 'residentBytes' | 'threads'>

/** Fields 14, 15 and 20 of proc_pid_stat(5); the name in parentheses may have spaces. */
async function readProc(pid: number): Promise<Counted> {
  const text = await readFile(`/proc/${pid}/stat`, 'utf8')
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  const ticks = Number(fields[11]) + Number(fields[12])
  const status = await readFile(`/proc/${pid}/status`, 'utf8')
  const kibibytes = Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1] ?? 0)
  return {
    cpuMs: Math.round((ticks * 1000) / ticksPerSecond),
    residentBytes: kibibytes * 1024,
    threads: Number(fields[17]),
  }
}

async function readPs(pid: number): Promise<Counted> {
  const { stdout } = await promisify(execFile)('/bin/ps', ['-o', 'time=,rss=', '-p', String(pid)])
  const [time = '', rss = ''] = stdout.trim().split(/\s+/)
  const seconds = time.split(/[-:]/).reduce((sum, part) => sum * 60 + Number(part), 0)
  return { cpuMs: Math.round(seconds * 1000), residentBytes: Number(rss) * 1024, threads: 0 }
}
