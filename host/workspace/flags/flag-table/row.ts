/**
 * What one tool does without a deliberate act of the user, and where it reads it. The comment `unverified` above a row
 * means that no documentation page confirms it: the places stay flagged, and the source is from memory.
 */
interface FlagRow {
  readonly tool: string
  /** Documentation page; for a row with several tools, that of the first. */
  readonly source: string
  /**
   * Names as in a .gitignore, matched at any depth: one name, or several separated by slashes. `*` matches any
   * characters of one name. Ignores letter case and Unicode forms. A directory includes all its contents.
   */
  readonly patterns: readonly string[]
}

/** Rows with one reason. */
export interface FlagGroup {
  /** Completes "it is left out because …" in a review. */
  readonly reason: string
  /**
   * Whether the target of a link at such a place is flagged too. False for folders of installed packages, whose links
   * lead to the user's own packages. Absent: true.
   */
  readonly followsLinks?: boolean
  readonly rows: readonly FlagRow[]
}
