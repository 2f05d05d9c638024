import { readdir, readFile } from 'node:fs/promises'
import { findVms } from './runs.ts'

/** The process id of QEMU itself for the one VM below `home`. */
export async function findQemu(home: string): Promise<number> {
  const [id] = await findVms(home)
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    const comm = await readFile(`/proc/${pid}/comm`, 'utf8').catch(() => '')
    const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
    if (comm.startsWith('qemu-system') && command.includes(`caisson-${id}`)) return Number(pid)
  }
  throw new Error(`no QEMU runs for ${id}`)
}
