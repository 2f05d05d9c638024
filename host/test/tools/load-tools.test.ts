// Real files in a real folder, imported by Node.
import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { loadTools } from '../../index.ts'

const schema = "{ type: 'object', properties: {}, additionalProperties: false }"
const tool = (more = '') =>
  `export default { description: 'Says hello', inputSchema: ${schema}, execute: () => 'hello'${more} }`

async function folderOf(files: Readonly<Record<string, string>>): Promise<string> {
  const folder = await temporaryFolder('tools')
  for (const [name, text] of Object.entries(files)) await writeFile(path.join(folder, name), text)
  return folder
}

it('registers the tool of each file under its own name or that of the file [S4.05]', async () => {
  const folder = await folderOf({
    'hello.mjs': tool(),
    'other.mjs': tool(", name: 'say_hello'"),
    'prototype.mjs': tool(", name: '__proto__'"),
    'typed.ts': `const answer: string = 'typed'\n${tool(', readOnly: true')}\nvoid answer`,
    'hello.test.mjs': 'throw new Error("a test is no tool")',
    'types.d.ts': 'export {}',
    'notes.md': '# no tool',
  })
  await mkdir(path.join(folder, 'deeper.mjs'))
  const { tools, leftOut } = await loadTools(pathToFileURL(`${folder}/`))
  expect(leftOut).toEqual([])
  expect(Object.keys(tools).toSorted()).toEqual(['__proto__', 'hello', 'say_hello', 'typed'])
})

it('leaves a tool out that cannot be loaded, says why, and loads the others [S4.05]', async () => {
  const folder = await folderOf({
    'absent.mjs': `import 'no-such-package-at-all'\n${tool()}`,
    'broken.mjs': 'export default {',
    'empty.mjs': 'export const unrelated = 1',
    'good.mjs': tool(),
    'math.mjs': tool(),
    'named.mjs': tool(", name: 'two words'"),
    'stuck.mjs': `await new Promise(() => {})\n${tool()}`,
    'thrower.mjs': 'throw new Error("no database")',
  })
  const { tools, leftOut } = await loadTools(folder, { timeoutMs: 1_000 })
  expect(Object.keys(tools)).toEqual(['good'])
  const reasons = Object.fromEntries(leftOut.map(({ file, reason }) => [path.basename(file), reason]))
  expect(reasons).toEqual({
    'absent.mjs': expect.stringMatching(/no-such-package-at-all/),
    'broken.mjs': expect.stringMatching(/./),
    'empty.mjs': expect.stringContaining('no default export'),
    'math.mjs': expect.stringContaining('has the name of a tool of the agent'),
    'named.mjs': expect.stringContaining('expected 1 to 64 of A-Z a-z 0-9 _ -'),
    'stuck.mjs': 'it did not load within 1000 ms',
    'thrower.mjs': 'no database',
  })
})

it('refuses two tools of one name and names both files [S4.05]', async () => {
  const folder = await folderOf({ 'a.mjs': tool(", name: 'close-order'"), 'close_order.mjs': tool() })
  await expect(loadTools(folder)).rejects.toMatchObject({
    code: 'invalid_options',
    message: expect.stringMatching(/a\.mjs.*close_order\.mjs/),
  })
})

it('refuses hostile arguments of loadTools [S2.04]', async () => {
  const folder = await temporaryFolder('tools')
  for (const value of [undefined, null, 1, '', {}, [], 'a\0b', new URL('https://example.com/tools')])
    await expect(loadTools(value as string)).rejects.toMatchObject({ code: 'invalid_options' })
  await expect(loadTools(path.join(folder, 'absent'))).rejects.toMatchObject({ code: 'invalid_options' })
  for (const value of [null, 1, { timeoutMs: 0 }, { timeoutMs: Number.NaN }, { timeoutMs: '1' }])
    await expect(loadTools(folder, value as object)).rejects.toMatchObject({ code: 'invalid_options' })
})
