import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { Spec, Validation } from '@cyclonedx/cyclonedx-library'
import { describe, expect, it } from 'vitest'
import { bundleAgent, digestOf } from '../../image/agent-bundle.ts'
import { ensureImage } from '../../image/image.ts'
import { type Bom, describeAgent, joinBoms, readBom, SBOM_FILE } from '../../image/sbom.ts'
import { makeAgent, makeRecipe, makeScratch } from './support.ts'

const validator = new Validation.JsonStrictValidator(Spec.Version.v1dot6)
const root: Bom = {
  bomFormat: 'CycloneDX',
  specVersion: '1.6',
  version: 1,
  metadata: { component: { type: 'operating-system', 'bom-ref': 'image', name: 'image' } },
  components: [{ type: 'library', 'bom-ref': 'deb', name: 'bash', version: '5' }],
  dependencies: [{ ref: 'image', dependsOn: ['deb'] }],
}

describe('the bill of materials', () => {
  it('of the real agent fits the official schema and names its npm packages [V.07]', async () => {
    const bundle = await bundleAgent(path.resolve(import.meta.dirname, '../../../agent/main.ts'))
    const bom = describeAgent(digestOf(bundle), bundle.get('packages.json'))
    expect(await validator.validate(JSON.stringify(bom))).toBeNull()
    expect(await validator.validate(JSON.stringify({ ...bom, components: [{}] }))).not.toBeNull()
    expect(bom.components.map((component) => component['bom-ref'])).toContainEqual(
      expect.stringMatching(/^pkg:npm\/zod@\d+\.\d+\.\d+$/),
    )
    expect(await validator.validate(JSON.stringify(joinBoms(root, bom)))).toBeNull()
  })

  it('writes scopes, expressions and versions as the formats ask [V.07]', async () => {
    const packages = [{ name: '@s/a', version: '1.0.0+b', license: 'MIT OR ISC', sha512: 'a'.repeat(128) }]
    const bom = describeAgent('0'.repeat(64), Buffer.from(JSON.stringify(packages)))
    expect(bom.components).toMatchObject([
      { group: '@s', name: 'a', purl: 'pkg:npm/%40s/a@1.0.0%2Bb', licenses: [{ expression: 'MIT OR ISC' }] },
    ])
    expect(await validator.validate(JSON.stringify(bom))).toBeNull()
  })

  it('of an image holds the agent and all of both [V.07]', () => {
    const agent = describeAgent('0'.repeat(64), Buffer.from('[{"name":"zod","version":"4.0.0"}]'))
    const bom = joinBoms(root, agent)
    expect(bom.components.map(({ name }) => name)).toEqual(['bash', 'caisson-agent', 'zod'])
    expect(bom.dependencies).toEqual([
      { ref: 'image', dependsOn: ['deb', 'caisson-agent'] },
      { ref: 'caisson-agent', dependsOn: ['pkg:npm/zod@4.0.0'] },
    ])
  })

  it('refuses a list of packages that is none [V.07]', () => {
    expect(() => describeAgent('0'.repeat(64), Buffer.from('{"name":1}'))).toThrow()
  })

  it('lies beside the manifest of an agent disk [V.07]', async () => {
    await using scratch = await makeScratch()
    const sources = { recipe: await makeRecipe(scratch.folder), agent: await makeAgent(scratch.folder) }
    const { agentDisk } = await ensureImage({ cacheDir: scratch.cacheDir, sources })
    const text = await readFile(path.join(path.dirname(agentDisk), SBOM_FILE), 'utf8')
    expect(await validator.validate(text)).toBeNull()
  })

  it('is refused with its place when it cannot be read [V.07]', async () => {
    await using scratch = await makeScratch()
    await expect(readBom(scratch.folder, scratch.folder)).rejects.toMatchObject({
      kind: 'image_damaged',
      message: expect.stringContaining(SBOM_FILE),
    })
  })
})
