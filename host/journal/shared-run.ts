/** A run of a fleet, as the database of the fleet has it: what hosts that do not carry it out know without its journal. */
import type { RunOutline } from './run-outline.ts'

/** The host that carries a run out. */
export interface RunHost {
  /** Of its process. */
  readonly id: string
  /** Untrusted text. */
  readonly name: string
  /** Since when, ms since 1970. */
  readonly since: number
}

/** A run of a fleet, as its row says. */
export interface SharedRun {
  readonly id: string
  /** Null: no host has it. */
  readonly host: RunHost | null
  readonly hasEnded: boolean
  /** Whether it waits for nothing but people. */
  readonly waits: boolean
  /** The end of its journal. */
  readonly seq: number
  readonly hash: string
  /** Its place in lists, ms since 1970. */
  readonly begunAt: number
  /** Some of it may be a second old. */
  readonly outline: RunOutline
  /** Why the outline cannot be used; then it is empty. */
  readonly problem?: string
}
