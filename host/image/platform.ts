// What building needs from this machine: Linux and Debian's programs. The one place that knows them.
// It runs nothing and installs nothing.

import { findProgram } from '../vm/programs.ts'
import { ImageError } from './image-error.ts'

/** Program to the Debian package that brings it. */
const rootTools = {
  bash: 'bash',
  awk: 'mawk',
  tar: 'tar',
  sha256sum: 'coreutils',
  ldconfig: 'libc-bin',
  'apt-get': 'apt',
  'dpkg-deb': 'dpkg',
  'mkfs.erofs': 'erofs-utils',
  zstd: 'zstd',
  cpio: 'cpio',
  strip: 'binutils',
} as const

const agentTools = { 'mkfs.erofs': 'erofs-utils' } as const

/** @throws {ImageError} `platform_unsupported` or `tools_missing`, naming all that is missing */
export async function requireRootTools(): Promise<void> {
  if (process.platform !== 'linux') {
    throw new ImageError(
      'platform_unsupported',
      `building needs Linux with apt, and this is ${process.platform}`,
      'build on a Debian machine or in a Debian container (caisson image build) and copy its images/ folder to the same place in your cache folder',
    )
  }
  await requireTools(rootTools)
}

/** @throws {ImageError} `tools_missing` */
export async function requireAgentTools(): Promise<void> {
  await requireTools(agentTools)
}

/** `tools` maps a program to the package that brings it. Exported for tests. */
export async function requireTools(tools: Readonly<Record<string, string>>): Promise<void> {
  const found = await Promise.all(
    Object.keys(tools).map(async (name) => [name, await findProgram(name)] as const),
  )
  const missing = found.filter(([, path]) => path === undefined).map(([name]) => name)
  if (missing.length === 0) return
  const packages = [...new Set(missing.map((name) => tools[name] ?? name))]
  throw new ImageError(
    'tools_missing',
    `these programs are missing: ${missing.join(', ')}`,
    process.platform === 'darwin'
      ? `install them: brew install ${packages.join(' ')}`
      : `install them: apt-get install --no-install-recommends ${packages.join(' ')}`,
  )
}
