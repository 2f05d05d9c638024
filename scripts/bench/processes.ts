/** Memory and CPU time of a process from Linux. Not available elsewhere. */

import { readdir, readFile } from 'node:fs/promises'

export interface Memory {
  /** Proportional: shared memory is divided among its users. */
  readonly pssMiB: number
  /** Memory of this process alone. */
  readonly privateMiB: number
}

export async function readPss(pid: number): Promise<Memory> {
  const rollup = await readFile(`/proc/${pid}/smaps_rollup`, 'utf8')
  const mebibytes = (name: string) =>
    Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(rollup)?.[1] ?? Number.NaN) / 1024
  return {
    pssMiB: mebibytes('Pss'),
    privateMiB: mebibytes('Private_Clean') + mebibytes('Private_Dirty'),
  }
}

/** CPU time of all threads of the process, in milliseconds; nearly independent of other load. */
export async function readCpuMs(pid: number): Promise<number> {
  const threads = await readdir(`/proc/${pid}/task`)
  const times = threads.map(async (thread) => {
    const text = await readFile(`/proc/${pid}/task/${thread}/schedstat`, 'utf8')
    return Number(text.split(' ')[0]) / 1e6
  })
  return (await Promise.all(times)).reduce((sum, time) => sum + time, 0)
}
