/**
 * Does everything of a release but publishing it: builds and packs the package, makes its bill of materials and its
 * provenance, checks them, and says what would be published. Publishes nothing and needs no account.
 * usage: dry-run.ts [FOLDER] — the files go to FOLDER, otherwise to dist-release/.
 */
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { contentProblems, provenanceOf } from './archive.ts'
import { changelogProblems, releaseNotes } from './changelog.ts'

interface Packed {
  readonly filename: string
  readonly size: number
  readonly unpackedSize: number
  readonly files: readonly { readonly path: string }[]
}

const root = path.join(import.meta.dirname, '../..')
const out = path.resolve(process.argv[2] ?? path.join(root, 'dist-release'))
const startedOn = new Date()
const problems: string[] = []

/** The output of a program; its errors go to the terminal. */
const output = (command: string, args: readonly string[]) =>
  execFileSync(command, args, {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: 256 * 1024 ** 2,
    stdio: ['ignore', 'pipe', 'inherit'],
    // npm and what it calls run under this Node.
    env: { ...process.env, PATH: `${path.dirname(process.execPath)}:${process.env.PATH}` },
  }).trimEnd()
const read = (file: string) => readFileSync(path.join(root, file))

function check(name: string, found: readonly string[]): void {
  console.log(`${found.length === 0 ? '✔' : '✘'} ${name}`)
  for (const problem of found.slice(0, 20)) console.log(`    ${problem}`)
  if (found.length > 20) console.log(`    and ${found.length - 20} more`)
  problems.push(...found)
}

const { name, version } = JSON.parse(read('package.json').toString()) as { name: string; version: string }
rmSync(out, { recursive: true, force: true })
mkdirSync(out, { recursive: true })

console.log(`Release of ${name} ${version}, without publishing it`)
const commit = output('git', ['rev-parse', 'HEAD'])
const changed = output('git', ['status', '--porcelain']).split('\n').filter(Boolean)
check('the working tree is clean', changed)

const changelog = read('CHANGELOG.md').toString()
check('CHANGELOG.md has its form', changelogProblems(changelog))
const notes = releaseNotes(changelog, version)
check(
  `CHANGELOG.md has a section for ${version}`,
  notes ? [] : [`Rename [Unreleased] to [${version}] - YYYY-MM-DD, and put an empty [Unreleased] above it`],
)
const lock = JSON.parse(read('package-lock.json').toString()) as { version: string }
check('package-lock.json has the same version', lock.version === version ? [] : [`It has ${lock.version}`])

output('npm', ['run', 'build'])
const [packed] = JSON.parse(
  output('npm', ['pack', '--ignore-scripts', '--json', '--pack-destination', out]),
) as Packed[]
if (packed === undefined) throw new Error('npm pack named no archive')
const archive = readFileSync(path.join(out, packed.filename))
const files = packed.files.map((file) => file.path).sort()
writeFileSync(path.join(out, 'content.txt'), `${files.join('\n')}\n`)
check('the archive holds what it must and nothing else', contentProblems(files))

const sbom = JSON.parse(
  output('npm', ['sbom', '--sbom-format', 'cyclonedx', '--omit', 'dev', '--package-lock-only']),
) as { bomFormat: string; metadata: { component: { name: string } }; components?: unknown[] }
// npm names the package by the folder it lies in.
sbom.metadata.component.name = name
writeFileSync(path.join(out, 'sbom.cdx.json'), `${JSON.stringify(sbom, null, 2)}\n`)
const { bomFormat, components = [] } = sbom
check(
  'the bill of materials lists the packages',
  bomFormat === 'CycloneDX' && components.length > 0 ? [] : ['It is empty'],
)

const provenance = provenanceOf({
  archive: { name: packed.filename, content: archive },
  source: { commit, repository: repositoryUrl(), clean: changed.length === 0 },
  lockDigest: createHash('sha256').update(read('package-lock.json')).digest('hex'),
  node: process.version,
  npm: output('npm', ['--version']),
  startedOn,
  finishedOn: new Date(),
})
writeFileSync(path.join(out, 'provenance.intoto.json'), `${JSON.stringify(provenance, null, 2)}\n`)

console.log(`
Would publish ${name}@${version}
  archive     ${packed.filename}, ${kB(packed.size)}, ${kB(packed.unpackedSize)} unpacked, ${files.length} files
  sha256      ${provenance.subject[0]?.digest.sha256}
  commit      ${commit}
  SBOM        sbom.cdx.json, CycloneDX, ${components.length} packages
  provenance  provenance.intoto.json, SLSA v1, not signed: only a build service can sign for what it built
  notes       ${notes ? `${notes.split('\n').filter((line) => line.startsWith('- ')).length} entries` : 'none'}
Files are in ${path.relative(process.cwd(), out) || '.'}. Nothing was published.`)
if (problems.length > 0) console.log(`\nNot ready: ${problems.length} problems, marked ✘ above.`)
process.exitCode = problems.length === 0 ? 0 : 1

/** Without the credentials that a URL can hold; undefined for a checkout without a remote at an address. */
function repositoryUrl(): string | undefined {
  const remotes = output('git', ['config', '--default', '', '--get', 'remote.origin.url'])
  if (!URL.canParse(remotes)) return undefined
  const url = new URL(remotes)
  return url.protocol === 'https:' ? `git+https://${url.host}${url.pathname}` : undefined
}

function kB(bytes: number): string {
  return `${Math.round(bytes / 1000)} kB`
}
