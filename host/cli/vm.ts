/** `caisson vm boot`: a VM without a task, to see that it starts and how long each phase takes. */

import { foreignBlock, foreignLine } from '../ui/foreign.ts'
import { formatDuration } from '../ui/format.ts'
import { startVm } from '../vm/vm.ts'
import { type ExitCode, exitCodes } from './exit-codes.ts'
import { hostOf, type Io } from './io.ts'
import type { RunFlags } from './run.ts'

export async function vmBoot(io: Io, flags: RunFlags & { once?: boolean }): Promise<ExitCode> {
  const host = hostOf(io)
  const image = await host.image({ onProgress: (text) => io.stderr.write(`${foreignLine(text)}\n`) })
  const { memory, cpus, disk, accel, confine } = flags
  await using vm = await startVm({
    image,
    folders: host.folders,
    accelerator: accel,
    confine,
    ...(memory === undefined ? {} : { memoryBytes: memory }),
    ...(cpus === undefined ? {} : { cpus }),
    ...(disk === undefined ? {} : { diskBytes: disk }),
  })
  const { totalMs, guestUptimeMs: _, ...phases } = vm.timings
  for (const [name, ms] of Object.entries(phases))
    io.stdout.write(`${name.slice(0, -2).padEnd(8)} ${formatDuration(ms)}\n`)
  io.stdout.write(
    `ready    ${formatDuration(totalMs)} · ${vm.accelerator} · ${vm.confinement} · pid ${vm.pid}\n`,
  )
  if (flags.once === true) return exitCodes.completed
  io.stdout.write('Ctrl-C ends it\n')
  const interrupted = new Promise<null>((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => resolve(null))
  })
  const exit = await Promise.race([interrupted, vm.exited])
  if (exit === null) return exitCodes.completed
  io.stderr.write(
    `the VM ended by itself: ${exit.reason}\n${foreignBlock(exit.stderrTail + exit.consoleTail)}\n`,
  )
  return exitCodes.failed
}
