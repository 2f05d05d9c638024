/** The flags of a VM's size and machine as options of the library. */
import type { ResolvedRun } from '../../runs/resolved-run.ts'

export interface VmFlags {
  readonly ram?: number
  readonly cpus?: number
  readonly disk?: number
  readonly accel: 'auto' | 'kvm' | 'hvf' | 'tcg'
  readonly qemuSandbox: 'auto' | 'require'
}

export function vmOptionsOf({ ram, cpus, disk, accel, qemuSandbox }: VmFlags): ResolvedRun['vm'] {
  return {
    accelerator: accel,
    confine: qemuSandbox,
    ...(ram === undefined ? {} : { memoryBytes: ram }),
    ...(cpus === undefined ? {} : { cpus }),
    ...(disk === undefined ? {} : { diskBytes: disk }),
  }
}
