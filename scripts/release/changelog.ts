/** The form of CHANGELOG.md (Keep a Changelog 1.1.0): what does not fit it, and the notes of one version. */

const groups = ['Added', 'Changed', 'Deprecated', 'Removed', 'Fixed', 'Security']
const versionHeading = /^## \[(\d+\.\d+\.\d+(?:-[\w.]+)?)\] - (\d{4}-\d{2}-\d{2})$/

/** One sentence for each place that does not fit. Entries are single lines, so that parallel changes merge. */
export function changelogProblems(content: string): string[] {
  const problems: string[] = []
  const lines = content.split('\n')
  const dates: string[] = []
  let groupsSeen = new Set<string>()
  let entriesSeen = new Set<string>()
  /** The group above, until an entry follows it. */
  let openGroup: { name: string; line: number } | undefined
  let group: string | undefined
  let sections = 0

  const report = (index: number, problem: string) => problems.push(`line ${index + 1}: ${problem}`)
  const closeGroup = () => {
    if (openGroup) report(openGroup.line, `the group ${openGroup.name} has no entry`)
    openGroup = undefined
    group = undefined
  }

  for (const [index, line] of lines.entries()) {
    if (line.startsWith('## ')) {
      closeGroup()
      groupsSeen = new Set()
      entriesSeen = new Set()
      sections += 1
      if (line === '## [Unreleased]' && sections === 1) continue
      const date = versionHeading.exec(line)?.[2]
      if (sections === 1) report(index, `expected ## [Unreleased] first, got ${line}`)
      else if (date === undefined || !isDay(date))
        report(index, `expected ## [VERSION] - YYYY-MM-DD, got ${line}`)
      else if (date > (dates.at(-1) ?? date)) report(index, 'expected the newest first')
      else dates.push(date)
    } else if (line.startsWith('### ')) {
      closeGroup()
      const name = line.slice(4)
      if (!groups.includes(name)) report(index, `expected one of ${groups.join(', ')}, got ${name}`)
      if (groupsSeen.has(name)) report(index, `the group ${name} is there twice`)
      groupsSeen.add(name)
      group = name
      openGroup = { name, line: index }
    } else if (line.startsWith('- ')) {
      if (group === undefined) report(index, 'expected an entry below a group (### Added, ### Fixed …)')
      if (entriesSeen.has(line)) report(index, 'the entry is there twice')
      entriesSeen.add(line)
      openGroup = undefined
    } else if (group !== undefined && line !== '' && !line.startsWith('#### ')) {
      report(index, `expected an entry of one line that begins with "- ", got ${line}`)
    }
  }
  closeGroup()
  if (sections === 0) problems.push('expected a section ## [Unreleased]')
  return problems
}

function isDay(date: string): boolean {
  const day = new Date(`${date}T00:00:00Z`)
  return !Number.isNaN(day.getTime()) && day.toISOString().startsWith(date)
}

/** What stands below the heading of a version or of `Unreleased`; undefined if there is no such heading. */
export function releaseNotes(content: string, version: string): string | undefined {
  const lines = content.split('\n')
  const start = lines.findIndex((line) => line.startsWith(`## [${version}]`))
  if (start === -1) return undefined
  const next = lines.findIndex((line, index) => index > start && line.startsWith('## '))
  return lines
    .slice(start + 1, next === -1 ? undefined : next)
    .join('\n')
    .trim()
}
