/** The form of CHANGELOG.md: scripts read it to tell what a release changed. */
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { changelogProblems, releaseNotes } from '../../scripts/release/changelog.ts'

const root = path.join(import.meta.dirname, '../..')
const changelog = readFileSync(path.join(root, 'CHANGELOG.md'), 'utf8')

const text = (...lines: string[]) => ['# Changelog', '', ...lines, ''].join('\n')

describe('the changelog', () => {
  it('has the form of Keep a Changelog [S1.15]', () => {
    expect(changelogProblems(changelog)).toEqual([])
  })

  it.each([
    ['has no Unreleased first', text('## [0.1.0] - 2026-01-02', '', '### Added', '', '- One.'), /Unreleased/],
    ['has a version without a date', text('## [Unreleased]', '', '## [0.1.0]'), /line 5: .*YYYY-MM-DD/],
    ['has a day that does not exist', text('## [Unreleased]', '', '## [0.1.0] - 2026-02-30'), /line 5/],
    [
      'has an older version above a newer one',
      text('## [Unreleased]', '', '## [0.1.0] - 2026-01-02', '', '## [0.2.0] - 2026-01-03'),
      /line 7: .*newest first/,
    ],
    [
      'has a group of another name',
      text('## [Unreleased]', '', '### Improved', '', '- One.'),
      /line 5: .*Added/,
    ],
    [
      'has a group twice',
      text('## [Unreleased]', '', '### Added', '', '- One.', '', '### Added', '', '- Two.'),
      /line 9: .*twice/,
    ],
    ['has an entry outside a group', text('## [Unreleased]', '', '- One.'), /line 5: .*group/],
    [
      'has an entry twice',
      text('## [Unreleased]', '', '### Fixed', '', '- One.', '- One.'),
      /line 8: .*twice/,
    ],
    [
      'has an entry over two lines',
      text('## [Unreleased]', '', '### Fixed', '', '- One', '  more.'),
      /line 8/,
    ],
    ['has a group without entries', text('## [Unreleased]', '', '### Fixed'), /line 5: .*no entry/],
  ])('is refused when it %s [S1.15]', (_, content, problem) => {
    expect(changelogProblems(content).join('\n')).toMatch(problem)
  })

  it('gives the notes of one version [S1.15]', () => {
    const content = text(
      '## [Unreleased]',
      '',
      '## [0.2.0] - 2026-01-03',
      '',
      '### Added',
      '',
      '- Two.',
      '',
      '## [0.1.0] - 2026-01-02',
      '',
      '### Added',
      '',
      '- One.',
    )
    expect(releaseNotes(content, '0.2.0')).toBe('### Added\n\n- Two.')
    expect(releaseNotes(content, 'Unreleased')).toBe('')
    expect(releaseNotes(content, '0.3.0')).toBeUndefined()
  })
})
