// What building needs from this machine: Linux and Debian's programs. The one place that knows them.
// It runs nothing and installs nothing.

import { describeLeftOut, searchProgram } from '../processes/programs.ts'
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

/** Program to its absolute path. */
type ToolPaths<T extends string> = Readonly<Record<T, string>>

/** @throws {ImageError} `platform_unsupported` or `tools_missing`, naming all that is missing */
export async function requireRootTools(): Promise<ToolPaths<keyof typeof rootTools>> {
  if (process.platform !== 'linux') {
    throw new ImageError(
      'platform_unsupported',
      `building requires Linux with apt; this is ${process.platform}`,
      'build on a Debian machine or in a Debian container (caisson image build) and copy its images/ folder to the same place in your cache folder',
    )
  }
  return await requireTools(rootTools)
}

/** @throws {ImageError} `tools_missing` */
export async function requireAgentTools(): Promise<ToolPaths<keyof typeof agentTools>> {
  return await requireTools(agentTools)
}

/** `tools` maps a program to the package that brings it. @throws {ImageError} `tools_missing` */
export async function requireTools<T extends string>(
  tools: Readonly<Record<T, string>>,
): Promise<ToolPaths<T>> {
  const names = Object.keys(tools) as T[]
  const searched = await Promise.all(names.map(async (name) => [name, await searchProgram(name)] as const))
  const missing = searched.filter(([, { path }]) => path === undefined)
  if (missing.length === 0)
    return Object.fromEntries(searched.map(([name, { path = '' }]) => [name, path])) as Record<T, string>
  const packages = [...new Set(missing.map(([name]) => tools[name]))]
  throw new ImageError(
    'tools_missing',
    `these programs are missing: ${missing.map(([name]) => name).join(', ')}${describeLeftOut(...missing.map(([, found]) => found))}`,
    process.platform === 'darwin'
      ? `install them: brew install ${packages.join(' ')}`
      : `install them: apt-get install --no-install-recommends ${packages.join(' ')}`,
  )
}
