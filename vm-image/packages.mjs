// Reads and writes the data files of the recipe for build.sh: the lock and the machine's apt sources.
// Prints tab-separated lines; a file it does not understand ends it with a message and status 1.
import { readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const SUITE = /^[a-z0-9][a-z0-9./-]*$/
/** Names that only Debian's own archive gives to suites; others use `stable` too. */
const RELEASES = ['buster', 'bullseye', 'bookworm', 'trixie', 'forky', 'duke', 'sid']
/** How mirrors name the place of the main archive. */
const DEBIAN = /\/debian\/?$/
const fields = ['role', 'name', 'version', 'arch', 'sha256', 'size']

/** @returns {{lockVersion: 1, release: string, architectures: Record<string, {node: object, packages: object[]}>}} */
function readLock(path) {
  const lock = JSON.parse(readFileSync(path, 'utf8'))
  if (lock.lockVersion !== 1) throw new Error(`${path}: lockVersion 1 expected, seen ${lock.lockVersion}`)
  return lock
}

function entryOf(lock, path, arch) {
  const entry = lock.architectures[arch]
  if (!entry)
    throw new Error(
      `${path} has no packages for ${arch}; run: caisson image build --update-lock --arch ${arch}`,
    )
  return entry
}

/** One line a package: role, name, version, arch, sha256, size. */
function listPackages(path, arch) {
  return entryOf(readLock(path), path, arch).packages.map((entry) =>
    fields.map((field) => entry[field]).join('\t'),
  )
}

/** One line: npm package, version, sha256 of bin/node, its size. */
function showNode(path, arch) {
  const { node } = entryOf(readLock(path), path, arch)
  return [[node.package, node.version, node.sha256, node.size].join('\t')]
}

/** Writes the packages read from standard input (the lines of listPackages) for one architecture. */
function writeLock(path, release, arch, ...node) {
  let lock
  try {
    lock = readLock(path)
  } catch (error) {
    if (error.code !== 'ENOENT') throw error
    lock = { lockVersion: 1, release, architectures: {} }
  }
  const packages = readFileSync(0, 'utf8')
    .trim()
    .split('\n')
    .map((line) => {
      const values = line.split('\t')
      if (values.length !== fields.length || values.some((value) => value === ''))
        throw new Error(`bad line: ${line}`)
      return {
        ...Object.fromEntries(fields.map((field, index) => [field, values[index]])),
        size: Number(values[5]),
      }
    })
  packages.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0))
  const [name, version, sha256, size] = node
  lock.release = release
  lock.architectures[arch] = { node: { package: name, version, sha256, size: Number(size) }, packages }
  // One package a line: a change of one version is a change of one line.
  const parts = Object.entries(lock.architectures)
    .sort()
    .map(([key, entry]) => {
      const rows = entry.packages.map((row) => `        ${JSON.stringify(row)}`).join(',\n')
      return `    "${key}": {\n      "node": ${JSON.stringify(entry.node)},\n      "packages": [\n${rows}\n      ]\n    }`
    })
  const text = `{\n  "lockVersion": 1,\n  "release": ${JSON.stringify(release)},\n  "architectures": {\n${parts.join(',\n')}\n  }\n}\n`
  writeFileSync(`${path}.new`, text)
  renameSync(`${path}.new`, path)
  return []
}

/** The (uri, suite) pairs with the component main in an apt sources folder: the one-line and the stanza format. */
function readSources(folder) {
  const files = [join(folder, 'sources.list')]
  try {
    for (const name of readdirSync(join(folder, 'sources.list.d')).sort())
      files.push(join(folder, 'sources.list.d', name))
  } catch {}
  const pairs = []
  for (const file of files) {
    let text
    try {
      text = readFileSync(file, 'utf8').replace(/^\s*#.*\n?/gm, '')
    } catch {
      continue
    }
    if (file.endsWith('.sources')) pairs.push(...text.split(/\n\s*\n/).flatMap(readStanza))
    else if (file.endsWith('.list')) {
      for (const [, uri, suite] of text.matchAll(/^deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+(\S+)(?=.*\smain\b)/gm))
        pairs.push([uri, suite])
    }
  }
  return pairs.filter(([uri]) => /^(https?|mirror\+https?|file):/.test(uri))
}

function readStanza(stanza) {
  const field = (name) =>
    new RegExp(`^${name}:(.*(?:\\n[ \\t].*)*)`, 'im').exec(stanza)?.[1]?.trim().split(/\s+/) ?? []
  if (!field('Types').includes('deb') || field('Enabled')[0] === 'no') return []
  if (!field('Components').includes('main')) return []
  return field('URIs').flatMap((uri) => field('Suites').map((suite) => [uri, suite]))
}

/** The mirrors that the machine names for `suite`; else those it names for the same suite of another Debian release. */
function mirrorsOf(known, release, suite) {
  const kind = suite.slice(release.length)
  const others = RELEASES.map((other) => `${other}${kind}`)
  for (const suites of [[suite], others]) {
    const mirrors = known.filter((pair) => suites.includes(pair[1])).map(([uri]) => uri)
    if (mirrors.length > 0) return [...new Set(mirrors)]
  }
  // A mirror keeps all suites but security's in one place, and names that place like this.
  const main = kind === '' ? [] : mirrorsOf(known, release, release)
  return kind === '-security'
    ? main.filter((uri) => DEBIAN.test(uri)).map((uri) => uri.replace(DEBIAN, '/debian-security'))
    : main
}

/**
 * Lines of a sources.list for `release`, from the machine's own mirrors.
 * @throws when it names no Debian mirror: which one to trust is not ours to choose
 */
function listSources(folder, release, keyring) {
  if (!SUITE.test(release)) throw new Error(`bad release: ${release}`)
  const known = readSources(folder)
  return [release, `${release}-updates`, `${release}-security`].flatMap((suite) => {
    const mirrors = mirrorsOf(known, release, suite)
    if (mirrors.length === 0) {
      throw new Error(
        `${folder} names no Debian mirror with ${suite}; set CAISSON_APT_SOURCES to a folder whose sources.list has the line: deb MIRROR ${suite} main`,
      )
    }
    return mirrors.map((uri) => `deb [signed-by=${keyring}] ${uri} ${suite} main`)
  })
}

const commands = { packages: listPackages, node: showNode, write: writeLock, sources: listSources }
try {
  const [command, ...rest] = process.argv.slice(2)
  if (!Object.hasOwn(commands, command)) throw new Error(`unknown command: ${command}`)
  for (const line of commands[command](...rest)) process.stdout.write(`${line}\n`)
} catch (error) {
  process.stderr.write(`${error.message}\n`)
  process.exitCode = 1
}
