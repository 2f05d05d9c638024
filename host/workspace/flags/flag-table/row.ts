/**
 * What one tool does without a deliberate act of the person, and where it reads it. The comment `unverified` above a row
 * says that no page was found to confirm it: its places stay flagged, and its source is written from memory.
 */
export interface FlagRow {
  readonly tool: string
  /** The page of the tool's documentation that says so; where a row has several tools, that of the first. */
  readonly source: string
  /**
   * Names as in a .gitignore, found at any depth: one name, or several with slashes between them. `*` stands for any
   * characters of one name. Letter case and Unicode forms do not matter. A directory stands for all that is in it.
   */
  readonly patterns: readonly string[]
}

/** Rows with one reason. */
export interface FlagGroup {
  /** Completes "it is left out because …" in a review. */
  readonly reason: string
  /**
   * Whether what a link at such a place leads to is flagged too. Not so in folders of installed packages: links there
   * lead to the person's own packages, which are code like any other. Absent: yes.
   */
  readonly followsLinks?: boolean
  readonly rows: readonly FlagRow[]
}
