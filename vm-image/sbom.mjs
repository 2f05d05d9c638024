// Writes the root's bill of materials, CycloneDX 1.6 (ECMA-424) JSON, to standard output: every package of the lock with
// its digest, and the licenses that its copyright file declares. Same inputs, same bytes.
// usage: sbom.mjs LOCK ARCH IMAGE NPM FOLDER... — IMAGE holds the finished files, NPM npm's own, the FOLDERs the unpacked packages.
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, realpathSync } from 'node:fs'
import { join, sep } from 'node:path'

const COPYRIGHT_FORMAT =
  /^Format:\s*https?:\/\/www\.debian\.org\/doc\/packaging-manuals\/copyright-format\/1\.0/im
const MAX_NAME_CHARS = 100

/** Debian's short names that are not those of SPDX; the GNU ones follow a rule (see spdxOf). */
const spdx = {
  'Apache-2.0': 'Apache-2.0',
  'BSD-2-clause': 'BSD-2-Clause',
  'BSD-3-clause': 'BSD-3-Clause',
  'BSD-4-clause': 'BSD-4-Clause',
  BSL: 'BSL-1.0',
  CC0: 'CC0-1.0',
  'CC0-1.0': 'CC0-1.0',
  Expat: 'MIT',
  ISC: 'ISC',
  MIT: 'MIT',
  'MPL-2.0': 'MPL-2.0',
  curl: 'curl',
  X11: 'X11',
  Zlib: 'Zlib',
}

function spdxOf(name) {
  const [, kind, major, minor = '.0', later] = /^(A?GPL|LGPL|GFDL)-(\d)(\.\d)?(\+?)$/.exec(name) ?? []
  // The first GFDL and the second LGPL are the only versions whose number is written otherwise.
  if (kind !== undefined) return `${kind}-${major}${minor}-${later ? 'or-later' : 'only'}`
  return Object.hasOwn(spdx, name) ? spdx[name] : undefined
}

/** The text of usr/share/doc/PACKAGE/copyright in one of `folders`; undefined when it has none or a link leads out. */
function readCopyright(folders, name) {
  for (const folder of folders) {
    try {
      const file = realpathSync(join(folder, 'usr/share/doc', name, 'copyright'))
      if (file.startsWith(realpathSync(folder) + sep)) return readFileSync(file, 'utf8')
    } catch {
      // Not in this folder.
    }
  }
  return undefined
}

/** What a machine-readable copyright file declares for the files of a package, sorted; empty for one in prose. */
function readLicenses(text) {
  if (text === undefined || !COPYRIGHT_FORMAT.test(text)) return []
  const names = [...text.matchAll(/^License:[ \t]*(\S.*)$/gm)].map(([, name]) => name.trim())
  const unique = [...new Set(names.filter((name) => name.length <= MAX_NAME_CHARS))]
  const entries = unique.map((name) => {
    const id = spdxOf(name)
    return id === undefined ? { name } : { id }
  })
  const byText = new Map(entries.map((entry) => [entry.id ?? entry.name, entry]))
  return [...byText].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, license]) => ({ license }))
}

const sha256 = (content) => [{ alg: 'SHA-256', content }]

function debComponent({ role, name, version, arch, sha256: digest }, release, folders) {
  // package-url: a colon stays as it is.
  const text = encodeURIComponent(version).replaceAll('%3A', ':')
  const purl = `pkg:deb/debian/${encodeURIComponent(name)}@${text}?arch=${arch}&distro=${release}`
  const licenses = readLicenses(readCopyright(folders, name))
  return {
    type: name.startsWith('linux-image-') ? 'operating-system' : 'library',
    'bom-ref': purl,
    supplier: { name: 'Debian' },
    name,
    version,
    hashes: sha256(digest),
    ...(licenses.length === 0 ? {} : { licenses }),
    purl,
    properties: [{ name: 'caisson:part', value: role }],
  }
}

function nodeComponent({ package: name, version, sha256: digest }) {
  const purl = `pkg:npm/${name}@${version}`
  return {
    type: 'platform',
    'bom-ref': purl,
    name: 'node',
    version,
    // Of bin/node as that package holds it; in the root it is stripped.
    hashes: sha256(digest),
    licenses: [{ license: { id: 'MIT' } }],
    cpe: `cpe:2.3:a:nodejs:node.js:${version}:*:*:*:*:*:*:*`,
    purl,
    properties: [{ name: 'caisson:part', value: 'root' }],
  }
}

/** npm, and what its archive brings with it, from the folder that was packed; sorted. */
function npmComponents(folder) {
  const found = new Map()
  const visit = (place) => {
    const { name, version, license } = JSON.parse(readFileSync(join(place, 'package.json'), 'utf8'))
    const purl = `pkg:npm/${name.replace(/^@/, '%40')}@${encodeURIComponent(version)}`
    const [group, short] = name.startsWith('@') ? name.split('/') : [undefined, name]
    found.set(purl, {
      type: place === folder ? 'application' : 'library',
      'bom-ref': purl,
      ...(group === undefined ? {} : { group }),
      name: short,
      version,
      ...(typeof license === 'string' ? { licenses: [{ expression: license }] } : {}),
      purl,
      properties: [{ name: 'caisson:part', value: 'root' }],
    })
    const modules = join(place, 'node_modules')
    for (const entry of list(modules)) {
      const names = entry.startsWith('@')
        ? list(join(modules, entry)).map((one) => join(entry, one))
        : [entry]
      for (const one of names)
        if (list(join(modules, one)).includes('package.json')) visit(join(modules, one))
    }
  }
  visit(folder)
  return [...found].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, component]) => component)
}

/** Names in a folder; none where there is no folder. */
function list(folder) {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}

function fileComponent(image, name) {
  const digest = createHash('sha256')
    .update(readFileSync(join(image, name)))
    .digest('hex')
  return { type: 'file', 'bom-ref': `file:${name}`, name, hashes: sha256(digest) }
}

function describeRoot(lockFile, arch, image, npm, folders) {
  const lock = JSON.parse(readFileSync(lockFile, 'utf8'))
  const { node, packages } = lock.architectures[arch]
  const components = [
    ...packages.map((entry) => debComponent(entry, lock.release, folders)),
    nodeComponent(node),
    ...npmComponents(npm),
  ]
  const ref = `caisson-image-${arch}`
  return {
    $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    version: 1,
    metadata: {
      // Not the time of day: the date that every file of the image bears.
      timestamp: new Date(Number(process.env.SOURCE_DATE_EPOCH) * 1000).toISOString().replace('.000', ''),
      component: {
        type: 'operating-system',
        'bom-ref': ref,
        name: 'caisson-image',
        version: `${lock.release}-${arch}`,
        components: ['vmlinuz', 'initramfs', 'root.erofs'].map((name) => fileComponent(image, name)),
      },
    },
    components,
    dependencies: [{ ref, dependsOn: components.map((component) => component['bom-ref']) }],
  }
}

try {
  const [lock, arch, image, npm, ...folders] = process.argv.slice(2)
  process.stdout.write(`${JSON.stringify(describeRoot(lock, arch, image, npm, folders), null, 1)}\n`)
} catch (error) {
  process.stderr.write(`${error.message}\n`)
  process.exitCode = 1
}
