/** `caisson vm boot`: a VM without a task, to see that it starts, how long each phase takes, and to work in. */

import { CaissonError, errorMessage, hasCode } from '#specs/errors.ts'
import type { VmEntry } from '../../control/vms.ts'
import { formatBytes, formatDuration, formatTable } from '../../files/format.ts'
import { requireAccelerator } from '../../resolve-run.ts'
import { StandaloneVm } from '../../sandbox/standalone-vm.ts'
import type { VmExit } from '../../vm/vm.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { StopOnSignal } from '../interrupts.ts'
import { findVm, hostOf, type Io, printError } from '../io.ts'
import { type VmFlags, vmOptionsOf } from '../options.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { sanitizeBlock, sanitizeLine } from '../render/sanitize.ts'

/** @param guestCommand what follows `--` of `vm shell` */
export async function vmBoot(
  io: Io,
  flags: VmFlags & { workspace?: string; once?: boolean },
): Promise<ExitCode> {
  const host = hostOf(io)
  await requireAccelerator(vmOptionsOf(flags), host.folders)
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

export async function vmForward(io: Io, name: string, ports: string): Promise<ExitCode> {
  const { hostPort, guestPort } = parsePorts(ports)
  const vm = await findVm(io, name)
  using stop = new StopOnSignal('ends the process')
  const onFailure = (message: string) => io.stderr.write(`connection closed: ${sanitizeLine(message)}\n`)
  const opening = vm.forward({ guestPort, hostPort, onFailure })
  await using forwarding = await opening.catch((cause: unknown) => {
    if (!hasCode(cause, 'not_possible_now')) throw cause
    const remedy = `to use a free port: caisson vm forward ${name} 0:${guestPort}`
    throw new CaissonError('not_possible_now', errorMessage(cause), { remedy, cause })
  })
  io.stdout.write(
    `127.0.0.1:${forwarding.port} forwards to port ${guestPort} of ${vm.info.id}; press Ctrl-C to stop\n`,
  )
  await vm.ended(stop.signal)
  if (stop.signal.aborted) return exitCodes.completed
  io.stderr.write(`${vm.info.id} has ended\n`)
  return exitCodes.failed
}

/** `GUESTPORT` or `HOSTPORT:GUESTPORT`; 0 as the host's is any free one. */
function parsePorts(text: string): { hostPort: number; guestPort: number } {
  const match = /^(?:(\d{1,5}):)?(\d{1,5})$/.exec(text)
  const guestPort = Number(match?.[2])
  const hostPort = Number(match?.[1] ?? match?.[2])
  if (match === null || guestPort < 1 || guestPort > 0xffff || hostPort > 0xffff)
    throw new CaissonError('invalid_options', `expected [HOSTPORT:]GUESTPORT such as 8080:80, saw "${text}"`)
  return { hostPort, guestPort }
}

export async function vmList(io: Io, flags: { json?: boolean }): Promise<ExitCode> {
  const vms = await hostOf(io).vms.list()
  if (flags.json === true) for (const vm of vms) await writeJsonLine(io.stdout, vm)
  else if (vms.length === 0) io.stdout.write('no VM is running\n')
  else io.stdout.write(tableOf(vms))
  return exitCodes.completed
}

function tableOf(vms: readonly VmEntry[]): string {
  const rows = vms.map((vm) => [
    vm.id,
    vm.state,
    formatDuration(Math.max(0, Date.now() - vm.createdAtMs)),
    vm.memoryBytes === null ? '' : formatBytes(vm.memoryBytes),
    vm.pid === null ? '' : String(vm.pid),
    vm.runId ?? '',
    vm.directory === null ? '' : sanitizeLine(vm.directory),
  ])
  return formatTable(['VM', 'STATE', 'AGE', 'MEMORY', 'PID', 'RUN', 'DIRECTORY'], rows)
}

export async function vmStop(io: Io, name: string, flags: { now?: boolean }): Promise<ExitCode> {
  const vm = await findVm(io, name)
  const { id, runId } = vm.info
  if (runId !== null && flags.now !== true)
    io.stderr.write(`cancelling ${runId}; collecting its changes first (--now stops it immediately)\n`)
  await vm.stop({ now: flags.now === true })
  io.stdout.write(`stopped ${id}\n`)
  return exitCodes.completed
}

/** @param paused whether it is to stand still */
export async function vmPause(io: Io, name: string, paused: boolean): Promise<ExitCode> {
  const vm = await findVm(io, name)
  await vm.setPaused(paused)
  io.stdout.write(`${paused ? 'paused' : 'running'} ${vm.info.id}\n`)
  return exitCodes.completed
}
