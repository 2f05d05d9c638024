/** `caisson vm boot`: a VM without a task, to see that it starts, how long each phase takes, and to work in. */

import { formatDuration } from '../../files/format.ts'
import { StandaloneVm } from '../../sandbox/standalone-vm.ts'
import type { VmExit } from '../../vm/vm.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io, printError } from '../io.ts'
import { sanitizeBlock, sanitizeLine } from '../render/sanitize.ts'
import { type VmFlags, vmOptionsOf } from './vm-options.ts'

export async function vmBoot(
  io: Io,
  flags: VmFlags & { workspace?: string; once?: boolean },
): Promise<ExitCode> {
  const host = hostOf(io)
  const image = await host.image({ onProgress: (text) => io.stderr.write(`${sanitizeLine(text)}\n`) })
  const directory = flags.workspace === undefined ? {} : { directory: flags.workspace }
  await using bench = await StandaloneVm.open({
    image,
    folders: host.folders,
    // To see a boot is what this is for.
    vm: { ...vmOptionsOf(flags), start: 'cold' },
    ...directory,
  })
  const { vm } = bench
  const { totalMs, guestUptimeMs: _, ...phases } = vm.timings
  for (const [name, ms] of Object.entries(phases))
    io.stdout.write(`${name.slice(0, -2).padEnd(8)} ${formatDuration(ms)}\n`)
  io.stdout.write(
    `ready    ${formatDuration(totalMs)} · ${vm.accelerator} · ${vm.confinement} · pid ${vm.pid}\n`,
  )
  if (flags.once === true) return exitCodes.completed
  const interrupted = new Promise<'interrupted'>((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
      process.once(signal, () => resolve('interrupted'))
  })
  const stopped = bench.stopped.then(() => 'stopped' as const)
  const ends = [interrupted, stopped, vm.exited]
  const hint = `caisson vm shell ${vm.id} opens a shell`
  // A VM whose agent does not come up is what a developer wants to look into.
  bench.ready.then(
    () => io.stdout.write(`agent ready · ${hint} · Ctrl-C stops the VM\n`),
    (error: unknown) => printError(io, error),
  )
  return reportEnd(io, await Promise.race(ends))
}

function reportEnd(io: Io, end: 'interrupted' | 'stopped' | VmExit): ExitCode {
  if (end === 'interrupted') return exitCodes.completed
  if (end === 'stopped') {
    io.stdout.write('stopped by another process\n')
    return exitCodes.completed
  }
  io.stderr.write(
    `the VM ended unexpectedly: ${end.reason}\n${sanitizeBlock(end.stderrTail + end.consoleTail)}\n`,
  )
  return exitCodes.failed
}
