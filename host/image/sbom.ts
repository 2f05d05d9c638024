// The bill of materials, in CycloneDX 1.6 (ECMA-424) JSON: writes the agent's, reads the root's that build.sh wrote, and
// joins the two for a person or a scanner. No time of day goes in, so that the same inputs give the same bytes.

import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import { type NpmPackage, NpmPackages } from './agent-packages.ts'
import { damaged } from './manifest.ts'

/** Beside `manifest.json`, of a root and of an agent disk. */
export const SBOM_FILE = 'sbom.cdx.json'

const Component = z.looseObject({ type: z.string(), name: z.string(), 'bom-ref': z.string() })

export const Bom = z.looseObject({
  bomFormat: z.literal('CycloneDX'),
  specVersion: z.literal('1.6'),
  metadata: z.looseObject({ component: Component }),
  components: z.array(Component),
  dependencies: z.array(z.strictObject({ ref: z.string(), dependsOn: z.array(z.string()) })),
})
export type Bom = z.infer<typeof Bom>

/**
 * The agent's bill.
 * @param digest of the bundle
 * @param packages content of the bundle's `packages.json`; undefined for a bundle that has none
 * @throws when it is not a list of packages
 */
export function describeAgent(digest: string, packages: Uint8Array | undefined): Bom {
  const text = packages === undefined ? '[]' : Buffer.from(packages).toString('utf8')
  const components = NpmPackages.parse(JSON.parse(text)).map(npmComponent)
  const agent = {
    type: 'application',
    'bom-ref': 'caisson-agent',
    name: 'caisson-agent',
    version: digest,
    licenses: [{ license: { id: 'MIT' } }],
  }
  const refs = components.map((component) => component['bom-ref'])
  return {
    $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    version: 1,
    metadata: { component: agent },
    components,
    dependencies: [{ ref: 'caisson-agent', dependsOn: refs }],
  }
}

function npmComponent({ name, version, license, sha512 }: NpmPackage) {
  // package-url: the scope's @ is percent-encoded, the slash after it is not.
  const purl = `pkg:npm/${name.replace(/^@/, '%40')}@${encodeURIComponent(version)}`
  const [group, short] = name.startsWith('@') ? name.split('/') : [undefined, name]
  return {
    type: 'library',
    'bom-ref': purl,
    ...(group === undefined ? {} : { group }),
    name: short ?? name,
    version,
    ...(sha512 === undefined ? {} : { hashes: [{ alg: 'SHA-512', content: sha512 }] }),
    ...(license === undefined ? {} : { licenses: licensesOf(license) }),
    purl,
  }
}

/** A single id is written as such, anything with an operator as an expression. */
function licensesOf(license: string) {
  return /^[\w.+-]+$/.test(license) ? [{ license: { id: license } }] : [{ expression: license }]
}

/** The image's bill with the agent's in it: the agent becomes a component that the image depends on. */
export function joinBoms(root: Bom, agent: Bom): Bom {
  const component = agent.metadata.component
  const [image, ...rest] = root.dependencies
  const dependsOn = [...(image?.dependsOn ?? []), component['bom-ref']]
  return {
    ...root,
    components: [...root.components, component, ...agent.components],
    dependencies: [{ ref: root.metadata.component['bom-ref'], dependsOn }, ...rest, ...agent.dependencies],
  }
}

/** The bill of the root in `rootDirectory` and the agent in `agentDirectory`, joined. @throws {ImageError} `image_damaged` */
export async function readBom(rootDirectory: string, agentDirectory: string): Promise<Bom> {
  return joinBoms(await readOne(rootDirectory), await readOne(agentDirectory))
}

async function readOne(directory: string): Promise<Bom> {
  const file = path.join(directory, SBOM_FILE)
  try {
    return Bom.parse(JSON.parse(await readFile(file, 'utf8')))
  } catch (cause) {
    throw damaged(directory, `${file} cannot be read as a bill of materials`, { cause })
  }
}
