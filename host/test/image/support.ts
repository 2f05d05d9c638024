/** Temporary folders, a small recipe whose build.sh writes little files, and an agent of a few lines. */
import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { ensureImage, type Image } from '../../image/image.ts'
import { prepareFolders } from '../../state/folders.ts'
import { makeTestFolders } from '../support/vm.ts'

export interface Scratch extends AsyncDisposable {
  readonly folder: string
  readonly cacheDir: string
}

export async function makeScratch(): Promise<Scratch> {
  const folder = await mkdtemp(path.join(tmpdir(), 'caisson-image-'))
  const cacheDir = path.join(folder, 'cache')
  await mkdir(cacheDir, { mode: 0o700 })
  return {
    folder,
    cacheDir,
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }),
  }
}

export const realRecipe = path.resolve(import.meta.dirname, '../../../vm-image')

const quickBuild = `
out='' cache=''
while [ $# -gt 0 ]; do
  case $1 in --out) out=$2; shift ;; --cache) cache=$2; shift ;; esac
  shift
done
echo 'step pack small files'
echo built >>"$cache/builds"
for name in vmlinuz initramfs root.erofs sbom.cdx.json; do printf '%s of the image\\n' "$name" >"$out/$name"; done
`

/** A recipe with the real inputs, whose build.sh is `script`. */
export async function makeRecipe(folder: string, script: string = quickBuild): Promise<string> {
  const recipe = path.join(folder, 'recipe')
  await cp(realRecipe, recipe, { recursive: true })
  await writeFile(path.join(recipe, 'build.sh'), script, { mode: 0o755 })
  return recipe
}

/** The real root with an agent that does nothing, for what happens before or without an agent. Built in the user's cache. */
export async function makeStandInImage(folder: string): Promise<Image> {
  using home = makeTestFolders()
  await prepareFolders(home.folders)
  const bundle = path.join(folder, 'bundle')
  await mkdir(bundle)
  await writeFile(path.join(bundle, 'agent.cjs'), 'setInterval(() => {}, 1000)\n')
  const sources = { recipe: realRecipe, agent: { bundle } }
  return await ensureImage({ cacheDir: home.folders.cache, sources })
}

/** An agent of two files. @returns its entry and what to watch */
export async function makeAgent(folder: string, greeting = 'hello') {
  const agent = path.join(folder, 'agent')
  await mkdir(agent, { recursive: true })
  await writeFile(path.join(agent, 'greeting.ts'), `export const greeting: string = '${greeting}'\n`)
  await writeFile(
    path.join(agent, 'main.ts'),
    `import { greeting } from './greeting.ts'\nconsole.log(greeting)\n`,
  )
  return { entry: path.join(agent, 'main.ts'), watched: [agent] }
}
