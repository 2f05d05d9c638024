/**
 * The places in a workspace from which host programs run code or take instructions without a deliberate act. Data only:
 * `flag-rules.ts` matches paths, and `specs/workspace.md` defines the places.
 */
import { agents } from './flag-table/agents.ts'
import { editors } from './flag-table/editors.ts'
import { languageServers } from './flag-table/language-servers.ts'
import { linters } from './flag-table/linters.ts'
import { packages } from './flag-table/packages.ts'
import type { FlagGroup } from './flag-table/row.ts'
import { shells } from './flag-table/shells.ts'
import { versionControl } from './flag-table/version-control.ts'

/** The first group with a matching pattern gives the reason. */
export const flagTable: readonly FlagGroup[] = [
  ...versionControl,
  ...packages,
  ...editors,
  ...linters,
  ...languageServers,
  ...shells,
  ...agents,
]
