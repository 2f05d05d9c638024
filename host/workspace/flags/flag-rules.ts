/**
 * Matches paths with the flag table, name by name: a directory's position in the table determines everything below it.
 * So each directory is judged once, and a link's target can take over the link's position.
 */

import { agents } from './flag-table/agents.ts'
import { editors } from './flag-table/editors.ts'
import { languageServers } from './flag-table/language-servers.ts'
import { linters } from './flag-table/linters.ts'
import { packages } from './flag-table/packages.ts'
import type { FlagGroup } from './flag-table/row.ts'
import { shells } from './flag-table/shells.ts'
import { versionControl } from './flag-table/version-control.ts'
import { foldFileName, foldPath } from './folded-path.ts'

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

/** One position of a place in the table. A place has several if it is reachable by several names. */
export type Track = (
  | {
      /** The place and everything below it is flagged. */
      readonly kind: 'flagged'
      readonly reason: string
      /** Whether a link's target is flagged too. */
      readonly followsLinks: boolean
      /** Whether directories are flagged too, although most run nothing by themselves. */
      readonly directories?: boolean
    }
  /** Flagged unless its content shows that no executed code changed. */
  | { readonly kind: 'content'; readonly name: string }
  /** The first `count` names of a pattern have matched. */
  | { readonly kind: 'begun'; readonly pattern: number; readonly count: number }
  /** `.git` (empty text), or this path below it. */
  | { readonly kind: 'git'; readonly below: string }
  /**
   * A directory that git treats as a repository. `whole`: it exists on the host, and its history may change; otherwise
   * the changes would create it and every part is flagged.
   */
  | { readonly kind: 'repository'; readonly whole: boolean }
) & {
  /** The link or pointer file that gives the place this position. Absent: its own path. */
  readonly via?: string
}

interface Pattern {
  readonly names: readonly (string | RegExp)[]
  readonly reason: string
  readonly followsLinks: boolean
}

const patterns: readonly Pattern[] = flagTable.flatMap(({ reason, followsLinks = true, rows }) =>
  rows.flatMap((row) =>
    row.patterns.map((text) => ({ names: text.split('/').map(compileName), reason, followsLinks })),
  ),
)

/** Files judged by their content. */
const contentNames: ReadonlySet<string> = new Set([
  ...['package.json', 'package-lock.json', 'npm-shrinkwrap.json', 'yarn.lock', 'pnpm-lock.yaml', 'bun.lock'],
  ...['deno.lock', 'cargo.lock', 'poetry.lock', 'uv.lock', 'pdm.lock', 'pipfile.lock', 'gemfile.lock'],
])

/** Parts of a directory that git treats as a repository. */
const repositoryParts: ReadonlySet<string> = new Set([
  ...['head', 'config', 'config.worktree', 'commondir', 'gitdir', 'objects', 'refs', 'packed-refs'],
  ...['hooks', 'info', 'index', 'logs', 'modules', 'worktrees', 'remotes', 'branches', 'sequencer'],
  ...['rebase-merge', 'rebase-apply', 'shallow', 'description'],
])
const repositoryReason =
  'with it git would take its directory for a repository, and obey the configuration there'

/** Patterns by their first name if that is plain text; others are tried one by one. */
const byFirstName = new Map<string, number[]>()
const byFirstGlob: number[] = []
for (const [at, { names }] of patterns.entries()) {
  const [first] = names
  if (typeof first !== 'string') byFirstGlob.push(at)
  else byFirstName.set(first, [...(byFirstName.get(first) ?? []), at])
}
const anyFirstGlob = new RegExp(
  byFirstGlob
    .map((at) => patterns[at]?.names[0])
    .map((name) => (name instanceof RegExp ? name.source : ''))
    .join('|'),
  's',
)

/** Position of `name` in a directory with position `above`. `name` is folded. */
export function enter(above: readonly Track[], name: string): readonly Track[] {
  const tracks = trackEach(above, name)
  if (tracks.length <= maxTracks) return tracks.length === 0 ? nowhere : tracks
  return [tracks.find((track) => track.kind === 'flagged' && track.followsLinks) ?? crowded]
}

function trackEach(above: readonly Track[], name: string): Track[] {
  const tracks: Track[] = []
  for (const track of above) advance(track, name, tracks)
  for (const at of byFirstName.get(name) ?? []) match(at, 0, name, tracks)
  if (anyFirstGlob.test(name)) for (const at of byFirstGlob) match(at, 0, name, tracks)
  if (name === '.git' && !above.includes(nestedGit))
    tracks.push(above.some(({ kind }) => kind === 'git') ? nestedGit : { kind: 'git', below: '' })
  if (contentNames.has(name)) tracks.push({ kind: 'content', name })
  return tracks
}

/** Position of most places. */
export const nowhere: readonly Track[] = []
/** Maximum positions of one place; a place with more is flagged. */
export const maxTracks = 64
export const crowded: Track = { kind: 'flagged', reason: 'too many links lead to it', followsLinks: true }
/** One more position per level would make a deep path slow to judge; git never writes such a path. */
const nestedGit: Track = {
  kind: 'flagged',
  reason: "it is below a .git in git's own directory, where git puts none",
  followsLinks: true,
}

function advance(track: Track, name: string, to: Track[]): void {
  const by = track.via === undefined ? {} : { via: track.via }
  if (track.kind === 'flagged') to.push(track)
  else if (track.kind === 'git')
    to.push({ kind: 'git', below: track.below === '' ? name : `${track.below}/${name}`, ...by })
  else if (track.kind === 'begun') match(track.pattern, track.count, name, to, track.via)
  else if (track.kind === 'repository' && !repositoryParts.has(name)) return
  else if (track.kind === 'repository' && track.whole) to.push({ kind: 'git', below: name, ...by })
  else if (track.kind === 'repository')
    to.push({ kind: 'flagged', reason: repositoryReason, followsLinks: true, directories: true, ...by })
}

function match(pattern: number, count: number, name: string, to: Track[], via?: string): void {
  const found = patterns[pattern]
  const wanted = found?.names[count]
  if (found === undefined || wanted === undefined) return
  if (typeof wanted === 'string' ? wanted !== name : !wanted.test(name)) return
  const { reason, followsLinks, names } = found
  const by = via === undefined ? {} : { via }
  if (count + 1 < names.length) to.push({ kind: 'begun', pattern, count: count + 1, ...by })
  else to.push({ kind: 'flagged', reason, followsLinks, ...by })
}

/** Why a change of this kind at a place must be named; undefined if not. */
export function judge(
  tracks: readonly Track[],
  kind: 'file' | 'directory' | 'link',
): { readonly reason: string; readonly via?: string } | undefined {
  for (const track of tracks) {
    const reason = reasonOf(track, kind)
    if (reason !== undefined) return { reason, ...(track.via === undefined ? {} : { via: track.via }) }
  }
  return
}

function reasonOf(track: Track, kind: 'file' | 'directory' | 'link'): string | undefined {
  // A directory alone runs nothing; its contents are flagged separately.
  if (kind === 'directory') return track.kind === 'flagged' && track.directories ? track.reason : undefined
  if (track.kind === 'flagged') return track.reason
  if (track.kind === 'content')
    return kind === 'link'
      ? `a link in the place of ${track.name}`
      : track.via === undefined
        ? undefined
        : `it is read as ${track.name}`
  if (track.kind === 'git') {
    // The .git of a worktree or submodule is a file with the repository's path.
    if (track.below === '') return 'it tells git where its configuration lies'
    if (kind === 'link') return "a link inside git's own directory"
    return isGitSetting(track.below) ? gitSetting : undefined
  }
  if (kind === 'link') return 'a link in the place of a folder that is obeyed'
  return
}

const gitSetting = "it is in git's own directory and more than history, which can name programs that git runs"
/**
 * Paths below `.git` that commits, branches and clean-up write; everything else is a setting, a hook or an instruction.
 */
const gitHistory =
  /(?:[a-z_]+_(head|msg|editmsg)|head|merge_mode|index|shallow|packed-refs|description|info\/(exclude|refs)|(logs|refs)\/.+|objects\/[0-9a-f]{2}\/[0-9a-f]+|objects\/pack\/[^/]+|objects\/info\/(packs|commit-graphs?(\/[^/]+)?))$/
    .source
const historyBelow = new RegExp(`^${gitHistory}`, 's')
/** The history of a submodule or worktree is in a nested folder whose name may contain slashes. */
const nestedHistory = new RegExp(`^[^/]+/(?:.*/)?${gitHistory}`, 's')
/** Names of files that locate settings, whatever the submodule's name. */
const gitPointers = /(^|\/)(config|config\.worktree|commondir|gitdir|attributes|alternates|hooks\/[^/]+)$/

/** Whether a path below `.git` is not plainly history. */
function isGitSetting(below: string): boolean {
  // Git writes no such name.
  if (/\p{Cc}/u.test(below)) return true
  const nested = /^(?:modules|worktrees)\/(.+)$/s.exec(below)?.[1]
  if (nested === undefined) return !historyBelow.test(below)
  return gitPointers.test(below) || !nestedHistory.test(nested)
}

function compileName(text: string): string | RegExp {
  const folded = foldFileName(text)
  if (!folded.includes('*')) return folded
  const parts = folded.split('*').map((part) => part.replace(/[.+?^${}()|[\]\\]/g, '\\$&'))
  return new RegExp(`^${parts.join('.*')}$`, 's')
}

/** Why a change of the file must be named, as far as its path alone says. */
export function flagByPath(path: string): string | undefined {
  const tracks = foldPath(path).split('/').reduce<readonly Track[]>(enter, nowhere)
  return judge(tracks, 'file')?.reason
}
