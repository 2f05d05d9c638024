/** The flags of a VM's size and machine as options of the library. */
import type { RunPlan } from '../../runs/resolved-run.ts'

export interface VmFlags {
  readonly memory?: number
  readonly cpus?: number
  readonly disk?: number
  readonly accel: 'auto' | 'kvm' | 'hvf' | 'tcg'
  readonly confine: 'auto' | 'require'
}

export function vmOptionsOf({ memory, cpus, disk, accel, confine }: VmFlags): RunPlan['vm'] {
  return {
    accelerator: accel,
    confine,
    ...(memory === undefined ? {} : { memoryBytes: memory }),
    ...(cpus === undefined ? {} : { cpus }),
    ...(disk === undefined ? {} : { diskBytes: disk }),
  }
}
