/** What the doctor says of one thing that it looked at. */
export interface Finding {
  /** Stable name, such as `accelerator`. */
  readonly id: string
  readonly title: string
  /** `warn`: works with a restriction; `fail`: no VM can start. */
  readonly status: 'ok' | 'warn' | 'fail'
  /** What was found. */
  readonly seen: string
  /** What to do; absent when nothing need be done. */
  readonly remedy?: string
}
