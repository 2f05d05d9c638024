/** Patches and the files that they change, for tests. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createApplyPatch } from '../../tools/patch/apply-patch.ts'
import { call } from './tools.ts'
import { snapshot, temporaryFolder } from './trees.ts'

/** Contents by path. */
export type Files = Readonly<Record<string, string>>

export function fill(root: string, files: Files): void {
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(join(root, path, '..'), { recursive: true })
    writeFileSync(join(root, path), content)
  }
}

/** Every regular file below `root` with its content. */
export function contents(root: string): Files {
  const paths = Object.entries(snapshot(root)).filter(([, what]) => what.startsWith('file'))
  return Object.fromEntries(paths.map(([path]) => [path, readFileSync(join(root, path), 'utf8')]))
}

/** Applies a patch to files in a folder of their own; what came of it, what the model gets, and the files then. */
export async function patch(files: Files, text: string) {
  using folder = temporaryFolder()
  fill(folder.path, files)
  const tool = createApplyPatch({ root: folder.path })
  const result = await call(tool, { patch: text })
  const told = result.ok ? (tool.render?.(result.value) ?? '') : result.error.message
  return { code: result.ok ? 'ok' : result.error.code, told, after: contents(folder.path) }
}

export const envelope = (...lines: string[]) => ['*** Begin Patch', ...lines, '*** End Patch', ''].join('\n')
export const lines = (...some: string[]) => `${some.join('\n')}\n`
