/** JSON of a fleet: its hosts, what its runs wait for, and what a caller asks of it. */
import * as z from 'zod'
import { Count, Line, RunId } from '../protocol/text.ts'

/** Name or ID of a host. */
const HostName = Line.min(1).max(253)

export const FleetHostParams = z.strictObject({ host: HostName })
export const DrainRequest = z.strictObject({
  /** Lets the host take runs again. Absent: false. */
  undo: z.boolean().optional(),
})
export const MoveRequest = z.strictObject({
  /** Name or ID of the host that takes the run. Absent: any other. */
  host: HostName.optional(),
})

/** A host of the fleet, as the others see it. */
export const FleetHostResource = z.strictObject({
  hostId: z.string(),
  name: z.string(),
  version: z.string(),
  /** Runs that it carries out at once. */
  slots: Count,
  /** Runs that it has now. */
  runs: Count,
  /** Since its last sign of life, by the clock of the database. */
  seenSecondsAgo: z.number(),
  /** It takes no run, and gives back those that it has. */
  isDraining: z.boolean(),
  /** It ended, or gave no sign of life for a while. Others take its runs. */
  isGone: z.boolean(),
  /** What it has. Null: it does not say. */
  facts: z.strictObject({
    labels: z.array(z.string()),
    architecture: z.string().nullable(),
    accelerator: z.enum(['kvm', 'hvf', 'tcg']).nullable(),
    /** Memory that is free for VMs, MiB. */
    freeMib: z.number().nullable(),
    /** Digest of the image that its VMs start with. */
    image: z.string().nullable(),
  }),
})

export const FleetResource = z.strictObject({
  /** Those that were seen within a day. */
  hosts: z.array(FleetHostResource),
  runs: z.strictObject({
    /** For a host. */
    waiting: Count,
    atWork: Count,
    waitingForPeople: Count,
    ended: Count,
  }),
  /** What the fleet lacks, such as for an autoscaler. */
  signals: z.strictObject({
    waiting: Count,
    /** Of the run that has waited longest of those that a host can serve; 0: none waits. */
    oldestWaitSeconds: z.number(),
    /** Of hosts that take runs. */
    slots: z.strictObject({ total: Count, free: Count }),
    /** Runs that no host can serve, by what hosts lack. `hosts`: no host takes runs. */
    unservable: z.strictObject({
      ...{ hosts: Count, labels: Count, architecture: Count, accelerator: Count },
      ...{ memory: Count, image: Count, version: Count },
    }),
    /** Estimate of the time until the next run starts. */
    nextStartMs: Count,
  }),
})

export const MoveResource = z.strictObject({
  runId: RunId,
  /** `moving`: its host gives it back after its next checkpoint; `waiting`: no host has it. */
  state: z.enum(['moving', 'waiting']),
})
