/** What is found out about one section of a configuration. */
export interface ConfigFact {
  /** The section, such as `providers.local`. */
  readonly what: string
  readonly seen: string
  /** What a person should know, though nothing is wrong. */
  readonly note?: string
  /** What is wrong and what to do; absent: nothing. */
  readonly problem?: string
  /** Whether every run fails because of it. */
  readonly stopsRuns?: true
}
