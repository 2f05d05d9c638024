import { appendFile, cp, mkdir } from 'node:fs/promises'
import path from 'node:path'
import { Spec, Validation } from '@cyclonedx/cyclonedx-library'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { ensureImage } from '../../../image/image.ts'
import { cliPlace } from '../../support/cli.ts'
import { getTestImage, makeTestFolders } from '../../support/vm.ts'

it('prints one bill of materials of image and agent that fits the official schema [V.07, H.01]', async () => {
  await getTestImage()
  const place = await cliPlace({})
  const { code, stdout } = await place.run('image', 'sbom')
  expect(code).toBe(0)
  expect(await new Validation.JsonStrictValidator(Spec.Version.v1dot6).validate(stdout)).toBeNull()
  const { components } = JSON.parse(stdout) as { components: { name: string }[] }
  const names = components.map(({ name }) => name)
  expect(names).toEqual(expect.arrayContaining(['python3', 'git', 'node', 'caisson-agent', 'zod']))
})

it('says how to build an image that is not there [V.07, H.01]', async () => {
  const place = await cliPlace({}, { CAISSON_CACHE: await temporaryFolder('cli-cache') })
  expect(await place.run('image', 'sbom', '--arch', 'arm64')).toMatchObject({
    code: 4,
    stderr: expect.stringContaining('caisson image build --arch arm64'),
  })
})

it('repairs a damaged file when the image is built again [V.07]', async () => {
  await getTestImage()
  using home = makeTestFolders()
  const image = await ensureImage({ cacheDir: home.folders.cache })
  const cache = await temporaryFolder('cli-cache')
  for (const directory of [image.directory, path.dirname(image.agentDisk)]) {
    const copy = path.join(cache, path.relative(home.folders.cache, directory))
    await mkdir(path.dirname(copy), { recursive: true, mode: 0o700 })
    await cp(directory, copy, { recursive: true })
  }
  const place = await cliPlace({}, { CAISSON_CACHE: cache })
  expect(await place.run('image', 'build')).toMatchObject({ code: 0 })
  await appendFile(path.join(cache, path.relative(home.folders.cache, image.agentDisk)), 'x')
  expect(await place.run('image', 'info')).toMatchObject({ code: 4 })
  expect(await place.run('image', 'build')).toMatchObject({
    code: 0,
    stderr: expect.stringContaining('agent.erofs has'),
  })
  expect(await place.run('image', 'verify')).toMatchObject({ code: 0 })
})
