/**
 * Puts the machine of the tests where the host looks for QEMU, and an image beside it that only this machine can boot:
 * a folder for PATH and a folder for `CAISSON_CACHE`. Both programs are bundled, so that a start takes a tenth of a second.
 */
import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { build } from 'esbuild'
import { bundleAgent } from '../../../host/image/agent-bundle.ts'
import { ensureImage } from '../../../host/image/image.ts'
import { imageFiles } from '../../../host/image/manifest.ts'
import { readRecipeKey } from '../../../host/image/recipe-key.ts'
import { findSources } from '../../../host/image/sources.ts'
import { describeFiles } from '../../../host/image/verify.ts'

export interface InstalledMachine {
  /** For PATH. */
  readonly programs: string
  /** For `CAISSON_CACHE`. */
  readonly cache: string
  /** A folder for each machine that runs, or ran. */
  readonly place: string
}

export async function installMachine(folder: string): Promise<InstalledMachine> {
  const [programs, cache, place] = ['programs', 'cache', 'place'].map((name) => path.join(folder, name)) as [
    string,
    string,
    string,
  ]
  for (const each of [programs, cache, place]) await mkdir(each, { mode: 0o700 })
  const agent = await writeAgent(path.join(folder, 'agent'))
  const machine = await bundle('machine.ts', path.join(folder, 'machine.cjs'))
  const start = `#!/bin/sh\nexec '${process.execPath}' '${machine}' "$@"\n`
  await writeFile(path.join(programs, 'qemu-system-x86_64'), start, { mode: 0o755 })
  // Its sandbox would hide the agent and its folder.
  await writeFile(path.join(programs, 'bwrap'), '#!/bin/sh\nexit 1\n', { mode: 0o755 })
  await writeImage(cache, JSON.stringify({ place, agent }))
  await ensureImage({ cacheDir: cache })
  return { programs, cache, place }
}

/** As in the guest: one script with the code that V8 made of it. */
async function writeAgent(folder: string): Promise<string> {
  await mkdir(folder)
  const files = await bundleAgent(path.join(import.meta.dirname, 'guest-agent.ts'))
  for (const [name, content] of files) await writeFile(path.join(folder, name), content)
  return path.join(folder, 'agent.cjs')
}

export async function bundle(entry: string, outfile: string): Promise<string> {
  await build({
    entryPoints: [path.join(import.meta.dirname, entry)],
    outfile,
    bundle: true,
    format: 'cjs',
    platform: 'node',
    target: 'node24',
    conditions: ['caisson-source'],
    logLevel: 'silent',
  })
  return outfile
}

async function writeImage(cache: string, kernel: string): Promise<void> {
  const { key, inputs } = await readRecipeKey(findSources().recipe, 'amd64')
  const directory = path.join(cache, 'images', key)
  await mkdir(directory, { recursive: true, mode: 0o700 })
  const contents = { vmlinuz: kernel, initramfs: 'none', 'root.erofs': 'none', 'sbom.cdx.json': '{}' }
  for (const name of imageFiles) await writeFile(path.join(directory, name), contents[name])
  const manifest = {
    manifestVersion: 1,
    key,
    arch: 'amd64',
    files: await describeFiles(directory, imageFiles),
    versions: { debian: 'none', kernel: 'none', node: process.versions.node, python: 'none' },
    packages: {},
    inputs,
  }
  await writeFile(path.join(directory, 'manifest.json'), JSON.stringify(manifest))
}
