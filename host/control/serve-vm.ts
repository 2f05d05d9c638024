/** Opens the control socket of a running VM in the VM's folder, which is removed with it. */
import path from 'node:path'
import type { Vm } from '../vm/vm.ts'
import type { VmInfo } from './messages.ts'
import { ControlServer, controlSocketName } from './server.ts'
import type { VmService } from './services.ts'

interface ServeVmOptions {
  readonly vm: Vm
  /** The folder of all VMs: `Folders.vms`. */
  readonly vms: string
  readonly access: VmService['access']
  readonly state: () => VmInfo['state']
  /** The VM's run, and the workspace on the host; null if there is none. */
  readonly run: { readonly runId: string | null; readonly directory: string | null }
  readonly onStop: (now: boolean) => void
  readonly setPaused: VmService['setPaused']
}

/** @throws when the socket cannot be made */
export async function serveVm(options: ServeVmOptions): Promise<ControlServer> {
  const { vm, vms, access, state, run, onStop, setPaused } = options
  const createdAtMs = Date.now() - Math.round(vm.timings.totalMs)
  const describe = (): VmInfo => ({
    id: vm.id,
    ...run,
    state: state(),
    createdAtMs,
    memoryBytes: vm.memoryBytes,
    cpus: vm.cpus,
    pid: vm.pid,
    hostPid: process.pid,
    accelerator: vm.accelerator,
    confinement: vm.confinement,
  })
  const service: VmService = { describe, console: vm.console, stop: onStop, setPaused, access }
  return await ControlServer.open(path.join(vms, vm.id, controlSocketName), { vm: service })
}
