/**
 * The places in a workspace from which programs of the host run code, or are told to, without a deliberate act. Data
 * alone: how a path is compared with it is in `flag-rules.ts`, which places are meant is in `specs/workspace.md`.
 */
import { agents } from './flag-table/agents.ts'
import { editors } from './flag-table/editors.ts'
import { languageServers } from './flag-table/language-servers.ts'
import { linters } from './flag-table/linters.ts'
import { packages } from './flag-table/packages.ts'
import type { FlagGroup } from './flag-table/row.ts'
import { shells } from './flag-table/shells.ts'
import { versionControl } from './flag-table/version-control.ts'

/** The first group that has a pattern for a path gives the reason. */
export const flagTable: readonly FlagGroup[] = [
  ...versionControl,
  ...packages,
  ...editors,
  ...linters,
  ...languageServers,
  ...shells,
  ...agents,
]
