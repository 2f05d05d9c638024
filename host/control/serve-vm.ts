/** Opens the control socket of a running VM in the VM's folder, which is removed with it. */
import path from 'node:path'
import type { EgressPolicy } from '../egress/policy.ts'
import type { Vm } from '../vm/vm.ts'
import { resolveSize } from '../vm/vm-options.ts'
import type { VmDetails, VmInfo } from './messages.ts'
import { ControlServer, controlSocketName } from './server.ts'
import type { VmService } from './services.ts'
import { readUsage } from './usage.ts'

interface ServeVmOptions {
  readonly vm: Vm
  /** The folder of all VMs: `Folders.vms`. */
  readonly vms: string
  readonly access: VmService['access'] & { ports(): number[] }
  /** What programs of the VM may reach; absent: nothing. */
  readonly egress?: () => EgressPolicy | undefined
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
  const { image } = vm.plan.options
  const inspect = async (): Promise<VmDetails> => ({
    ...describe(),
    imageKey: 'key' in image && typeof image.key === 'string' ? image.key : null,
    qemuVersion: vm.qmp.version,
    diskMaxBytes: resolveSize(vm.plan.options).diskBytes,
    ports: access.ports(),
    egress: egressOf(options.egress?.()),
    usage: await readUsage(vm.pid, vm.plan.scratch.file),
  })
  const service: VmService = { describe, inspect, console: vm.console, stop: onStop, setPaused, access }
  return await ControlServer.open(path.join(vms, vm.id, controlSocketName), { vm: service })
}

/** Rules beyond this number are left out of a description. */
const rulesMaxCount = 500

function egressOf(policy: EgressPolicy | undefined): VmDetails['egress'] {
  if (policy === undefined) return null
  return {
    rules: policy.rules.slice(0, rulesMaxCount).map(({ rule, text }) => `${rule.effect} ${text}`),
    otherwise: policy.otherwise,
  }
}
