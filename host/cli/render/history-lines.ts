/** What becomes of git repositories, as lines of a review. Names of branches and paths are foreign. */

import { formatCount } from '../../files/format.ts'
import type { HistoryReport, SetAside } from '../../workspace/index.ts'
import type { Colours } from './colours.ts'
import { sanitizeLine } from './sanitize.ts'

/** References and flagged paths that are listed for a repository. */
const LISTED = 10

/** Nothing where no branch moves and nothing must be named. */
export function historyLines(
  reports: readonly HistoryReport[],
  aside: readonly SetAside[],
  colours: Colours,
): string[] {
  return reports.flatMap((report) => {
    const { directory, moved, flagged, flaggedCount, reason } = report
    if (moved.length === 0 && reason === undefined) return []
    const kept = aside.filter(({ path }) => path.startsWith(`${directory}/`))
    return [
      `git history in ${sanitizeLine(directory)}: ${formatCount(report.commits, 'new commit')}`,
      ...listed(
        moved.map(({ name, from, to }) => `  ${sanitizeLine(name)}: ${shortId(from)} → ${shortId(to)}`),
      ),
      ...(reason === undefined ? [] : [colours.yellow(`  flagged: ${sanitizeLine(reason)}`)]),
      ...listed(
        flagged.map(({ path, reason: why }) =>
          colours.yellow(`  in commits or the index: ${sanitizeLine(path)}: ${sanitizeLine(why)}`),
        ),
        flaggedCount,
      ),
      ...listed(
        kept.map(({ name, aside: under }) => `  ${sanitizeLine(name)} is kept as ${sanitizeLine(under)}`),
      ),
      ...(kept.length === 0
        ? []
        : [
            '  git does not check out or push this reference. To see its commits: git log REFERENCE; to merge them: git merge REFERENCE',
          ]),
    ]
  })
}

function shortId(id: string | undefined): string {
  return id === undefined ? 'none' : id.slice(0, 10)
}

function listed(lines: readonly string[], count = lines.length): string[] {
  const shown = lines.slice(0, LISTED)
  return count > shown.length ? [...shown, `  … ${count - shown.length} more`] : shown
}
