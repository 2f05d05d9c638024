/**
 * Compares a changed package.json or lock file with its old version: what would a package manager, test or editor newly
 * run? Unreadable text counts as changed.
 */

/** Keys of a package.json that describe a package and run nothing. All others affect what runs. */
const harmlessKeys: ReadonlySet<string> = new Set([
  ...['name', 'version', 'description', 'keywords', 'homepage', 'bugs', 'license', 'licenses', 'author'],
  ...['contributors', 'maintainers', 'funding', 'repository', 'private', 'readme', '$schema'],
  ...['type', 'main', 'module', 'exports', 'types', 'typings', 'typesVersions', 'files', 'sideEffects'],
  ...['engines', 'os', 'cpu', 'peerDependenciesMeta'],
])
/**
 * Keys that name dependencies. A registry package runs once a person installs it; a package from elsewhere is flagged.
 */
const dependencyLists: ReadonlySet<string> = new Set([
  ...['dependencies', 'devDependencies', 'optionalDependencies', 'peerDependencies'],
])

/** Why a package.json must be named; undefined if only harmless keys changed. `before` is absent for a new file. */
export function packageReason(before: string | undefined, after: string): string | undefined {
  const [old, now] = [before === undefined ? {} : readObject(before), readObject(after)]
  if (old === undefined || now === undefined) return 'it cannot be read, and may change the scripts that run'
  const changed = [...new Set([...Object.keys(old), ...Object.keys(now)])].filter(
    (key) => !harmlessKeys.has(key) && runsOf(key, old[key]) !== runsOf(key, now[key]),
  )
  if (changed.length === 0) return
  const keys = changed.map((key) => `"${key}"`).join(', ')
  return `its ${keys} decide which scripts and tools run at install, test or start, or in an editor`.slice(
    0,
    500,
  )
}

function runsOf(key: string, value: unknown): string {
  if (!dependencyLists.has(key)) return JSON.stringify(value ?? null)
  const isElsewhere = (from: unknown) => typeof from !== 'string' || /[:/]/.test(from)
  if (typeof value !== 'object' || value === null) return JSON.stringify(value === undefined ? [] : [value])
  return JSON.stringify(Object.entries(value).filter(([, from]) => isElsewhere(from)))
}

function readObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined
  } catch {
    return
  }
}

/** How one kind of lock file names a package's source. */
interface LockForm {
  /** Matches each source in the text; its first group is the source. */
  readonly source: RegExp
  /** Matches the registry's own sources. */
  readonly registry: RegExp
}

const npmPlace = /^https:\/\/registry\.(?:npmjs\.org|yarnpkg\.com)\//
/** A relative path that does not lead up is a package of the workspace itself. */
const npmRegistry = /^(https:\/\/(registry\.(npmjs\.org|yarnpkg\.com)|npm\.jsr\.io)\/|(?![/.]|[^/]*:))/
const pythonRegistry = /^https:\/\/(pypi\.org|files\.pythonhosted\.org)\//
const anyUrl = /((?:https?|ssh|git(?:\+\w+)?|file|github|gitlab|bitbucket):[^\s"'`,)]+)/g

const lockForms: Readonly<Record<string, LockForm>> = {
  'package-lock.json': { source: /"resolved"\s*:\s*"([^"]*)"/g, registry: npmRegistry },
  'npm-shrinkwrap.json': { source: /"resolved"\s*:\s*"([^"]*)"/g, registry: npmRegistry },
  'yarn.lock': {
    source: /^ +(?:resolved|resolution:?) "?([^"\n]*)"?$/gm,
    registry:
      /^(https:\/\/registry\.(npmjs\.org|yarnpkg\.com)\/.*|@?[^@:]+@(npm|workspace|patch|virtual):(?!.*(:\/\/|__archiveUrl)).*)$/,
  },
  'pnpm-lock.yaml': { source: /(?:tarball|repo|directory): ['"]?([^\s,'"}]+)/g, registry: npmRegistry },
  'bun.lock': { source: anyUrl, registry: npmRegistry },
  'deno.lock': { source: anyUrl, registry: /^https:\/\/(deno\.land|jsr\.io|registry\.npmjs\.org)\// },
  'cargo.lock': {
    source: /^source = "([^"]*)"/gm,
    registry:
      /^(registry\+https:\/\/github\.com\/rust-lang\/crates\.io-index|sparse\+https:\/\/index\.crates\.io\/)$/,
  },
  'poetry.lock': { source: anyUrl, registry: pythonRegistry },
  'uv.lock': { source: anyUrl, registry: pythonRegistry },
  'pdm.lock': { source: anyUrl, registry: pythonRegistry },
  'pipfile.lock': { source: anyUrl, registry: pythonRegistry },
  'gemfile.lock': { source: /^ +remote: (.*)$/gm, registry: /^(https:\/\/rubygems\.org\/|\.)$/ },
}

/** Why a lock file must be named: a package comes from another place than its registry, which it did not before. */
export function lockReason(name: string, before: string | undefined, after: string): string | undefined {
  const form = lockForms[name]
  if (form === undefined) return
  const known = new Set(otherSources(form, before ?? ''))
  const [source] = [...otherSources(form, after)].filter((one) => !known.has(one))
  const swapped = source === undefined ? swappedPackage(name, before, after) : undefined
  if (source === undefined && swapped === undefined) return
  return `it takes a package from elsewhere than the registry's own place for it: "${source ?? swapped}"`.slice(
    0,
    500,
  )
}

function* otherSources({ source, registry }: LockForm, text: string): Generator<string> {
  for (const [, found = ''] of text.matchAll(source)) if (!registry.test(found)) yield found
}

/** A package of npm's whose text comes from the registry, but is another package's. */
function swappedPackage(name: string, before: string | undefined, after: string): string | undefined {
  if (name !== 'package-lock.json' && name !== 'npm-shrinkwrap.json') return
  const known = new Set(before === undefined ? [] : swappedIn(before))
  return swappedIn(after).find((one) => !known.has(one))
}

function swappedIn(text: string): string[] {
  const lock = readObject(text)
  if (lock === undefined) return ['text that cannot be read']
  const { packages } = lock
  if (typeof packages !== 'object' || packages === null) return []
  return Object.entries(packages as Record<string, unknown>).flatMap(([place, value]) => {
    if (typeof value !== 'object' || value === null) return []
    const { resolved } = value as { resolved?: unknown }
    if (typeof resolved !== 'string' || !npmPlace.test(resolved)) return []
    const own = place.slice(place.lastIndexOf('node_modules/') + 'node_modules/'.length)
    return resolved.replace(npmPlace, '').startsWith(`${own}/-/`) ? [] : [resolved]
  })
}
