import { chmod, mkdir, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { readRecipeKey } from '../../image/recipe-key.ts'
import { makeRecipe, makeScratch } from './support.ts'

it('gives another key for another recipe, lock, guest file, mode or architecture [V.07]', async () => {
  await using scratch = await makeScratch()
  const recipe = await makeRecipe(scratch.folder)
  const keys = [(await readRecipeKey(recipe, 'amd64')).key, (await readRecipeKey(recipe, 'arm64')).key]
  for (const name of ['packages.lock.json', 'packages.list', 'lib/root.sh', 'guest/init', 'initramfs/init']) {
    await writeFile(path.join(recipe, name), `another ${name}`)
    keys.push((await readRecipeKey(recipe, 'amd64')).key)
  }
  await chmod(path.join(recipe, 'floor'), 0o755)
  keys.push((await readRecipeKey(recipe, 'amd64')).key)
  expect(new Set(keys).size).toBe(keys.length)
})

it('keeps the key when tests, byte code or the Packer template change [V.07]', async () => {
  await using scratch = await makeScratch()
  const recipe = await makeRecipe(scratch.folder)
  const before = await readRecipeKey(recipe, 'amd64')
  await mkdir(path.join(recipe, 'guest/__pycache__'), { recursive: true })
  await writeFile(path.join(recipe, 'guest/__pycache__/init.pyc'), 'x')
  await writeFile(path.join(recipe, 'caisson.pkr.hcl'), 'x')
  expect(await readRecipeKey(recipe, 'amd64')).toEqual(before)
})

it('says which part of a recipe is missing [V.07]', async () => {
  await using scratch = await makeScratch()
  const recipe = await makeRecipe(scratch.folder)
  await rm(path.join(recipe, 'packages.lock.json'))
  await expect(readRecipeKey(recipe, 'amd64')).rejects.toMatchObject({
    kind: 'sources_missing',
    message: expect.stringContaining('packages.lock.json'),
  })
})
