/** A row of hostile code: what it does, and what a call of it gives. */

export interface HostileRow {
  readonly what: string
  /** Defines `work`. */
  readonly code: string
  /** JSON of the value, or `CODE: MESSAGE`. */
  readonly gives: RegExp
  /** Name of the function. Absent: `work`. */
  readonly name?: string
  /** JSON schema of the result. Absent: any. */
  readonly returns?: { readonly type: string }
  /** Absent: a time in which every other program ends. */
  readonly timeoutMs?: number
  /** Whether only a VM bounds what it does. Absent: no. */
  readonly needsVm?: true
}

/** A time that is over before such code would end. */
export const soon = 400
export const ends = { timeoutMs: soon, gives: /^timed_out: work was ended after \d+ ms$/ }
