// One bootable disk from an image, for clouds and hypervisors that take no kernel apart from the disk: disk.sh lays
// it out, and Packer boots it once to see that it works and compresses it to a qcow2.

import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rename, rm } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { trustedSearchPath } from '../processes/programs.ts'
import { buildEnvironment } from './build-environment.ts'
import { errorFrom } from './build-root.ts'
import type { Image } from './image.ts'
import { ImageError } from './image-error.ts'
import { requireTools } from './platform.ts'
import { findSources } from './sources.ts'
import { hashFile } from './verify.ts'

const run = promisify(execFile)
const LAYOUT_DEADLINE_MS = 120_000
/** Packer's own time-out for the guest is three minutes; compressing comes on top. */
const PACKER_DEADLINE_MS = 400_000

/** What the guest's init says on the console when it passed the build's boot. */
const PASSED = 'caisson: OK'

interface DiskImageOptions {
  readonly image: Pick<Image, 'directory' | 'agentDisk'>
  /** The qcow2 to make; its folder exists. */
  readonly out: string
}

/** Writes the raw disk. @throws {ImageError} */
export async function writeRawDisk({ image, out }: DiskImageOptions): Promise<void> {
  const script = path.join(findSources().recipe, 'disk.sh')
  const args = [script, '--image', image.directory, '--agent', image.agentDisk, '--out', out]
  const { bash } = await requireTools({ bash: 'bash' })
  const env = buildEnvironment(await trustedSearchPath())
  await run(bash, args, { timeout: LAYOUT_DEADLINE_MS, env }).catch((cause: unknown) => {
    const { stderr = '', code } = cause as { stderr?: string; code?: number }
    throw errorFrom(stderr, code ?? null)
  })
}

/** Makes the qcow2 by Packer, booting it once. @throws {ImageError} with the console's end when it does not boot */
export async function writeDiskImage(options: DiskImageOptions): Promise<void> {
  const { packer } = await requireTools({ packer: 'packer', 'qemu-system-x86_64': 'qemu-system-x86' })
  const work = await mkdtemp(`${path.resolve(options.out)}.work-`)
  try {
    const [disk, console, output] = ['disk.raw', 'console.log', 'packer'].map((name) =>
      path.join(work, name),
    ) as [string, string, string]
    await writeRawDisk({ ...options, out: disk })
    const variables = { disk, disk_sha256: await hashFile(disk), output, console }
    const failure = await runPacker(packer, work, variables)
    const printed = await readFile(console, 'utf8').catch(() => '')
    if (failure !== undefined || !printed.includes(PASSED)) {
      const tail = printed.trim().split('\n').slice(-5).join(' / ') || 'nothing'
      const seen = `the disk failed its test boot: ${failure ?? `no "${PASSED}"`}; console: ${tail}`
      throw new ImageError('build_failed', seen, 'run: caisson image verify, then start again')
    }
    await rename(path.join(output, 'caisson.qcow2'), options.out)
  } finally {
    await rm(work, { recursive: true, force: true })
  }
}

async function runPacker(
  packer: string,
  work: string,
  variables: Readonly<Record<string, string>>,
): Promise<string | undefined> {
  const template = path.join(findSources().recipe, 'caisson.pkr.hcl')
  const given = Object.entries(variables).flatMap(([name, value]) => ['-var', `${name}=${value}`])
  const env = {
    // Where it finds QEMU.
    PATH: await trustedSearchPath(),
    HOME: work,
    // It asks its maker for news otherwise, and keeps a copy of the disk.
    CHECKPOINT_DISABLE: '1',
    PACKER_CACHE_DIR: path.join(work, 'packer-cache'),
    PACKER_NO_COLOR: '1',
  }
  try {
    await run(packer, ['build', ...given, template], { timeout: PACKER_DEADLINE_MS, env, cwd: work })
    return undefined
  } catch (error) {
    const { stdout = '', message } = error as { stdout?: string; message: string }
    return stdout.trim().split('\n').slice(-4).join(' / ') || message
  }
}
