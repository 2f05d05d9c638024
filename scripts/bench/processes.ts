/** What Linux tells of a process: memory and time on the processor. Not available elsewhere. */

import { readdir, readFile } from 'node:fs/promises'

export interface Memory {
  /** Proportional: what several map is divided among them. */
  readonly pssMiB: number
  /** What is this process's alone. */
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

/** Time that all threads of the process have spent on a processor, in milliseconds: other load hardly changes it. */
export async function readCpuMs(pid: number): Promise<number> {
  const threads = await readdir(`/proc/${pid}/task`)
  const times = threads.map(async (thread) => {
    const text = await readFile(`/proc/${pid}/task/${thread}/schedstat`, 'utf8')
    return Number(text.split(' ')[0]) / 1e6
  })
  return (await Promise.all(times)).reduce((sum, time) => sum + time, 0)
}
