// The cache of agent disks: agents/DIGEST/ with an erofs that holds the agent's files, named by their sha256.
// A checkout bundles again only when a source file's stamp changed; the root image is never touched.

import { execFile } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { mkdir, mkdtemp, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { z } from 'zod'
import { parseJson } from '../files/json.ts'
import { type AgentBundle, bundleAgent, digestOf } from './agent-bundle.ts'
import { agentCacheName } from './agent-cache.ts'
import { ImageError } from './image-error.ts'
import { AgentManifest, isMissing, readImageManifest } from './manifest.ts'
import { requireAgentTools } from './platform.ts'
import { describeAgent, SBOM_FILE } from './sbom.ts'
import type { ImageSources } from './sources.ts'
import { checkFiles, describeFiles, verifyFiles } from './verify.ts'

const run = promisify(execFile)
const MKFS_DEADLINE_MS = 60_000
/** Fixed, so that the same bundle gives the same disk. */
const EPOCH_SECONDS = 1_704_067_200
const UUID = 'c5a15507-0000-4000-8000-000000000002'
const DIGEST = /^[0-9a-f]{64}$/

export interface AgentDisk {
  /** sha256 over the agent's files. */
  readonly digest: string
  readonly directory: string
  readonly disk: string
  readonly manifest: AgentManifest
}

interface AgentDiskOptions {
  readonly cacheDir: string
  readonly agent: ImageSources['agent']
  readonly onProgress?: (text: string) => void
  readonly replaceDamaged?: boolean
}

/** The disk of the present agent when its sources are those of the last bundle; else undefined. @throws {ImageError} */
export async function findAgentDisk(options: AgentDiskOptions): Promise<AgentDisk | undefined> {
  const digest = await knownDigest(options)
  return digest === undefined ? undefined : await findByDigest(options.cacheDir, digest)
}

/** The disk of the present agent, bundled and made when needed. @throws {ImageError} */
export async function ensureAgentDisk(options: AgentDiskOptions): Promise<AgentDisk> {
  const found = await findAgentDisk(options).catch((error: unknown) => {
    if (options.replaceDamaged !== true || !(error instanceof ImageError)) throw error
    options.onProgress?.(error.message)
    return undefined
  })
  if (found !== undefined) return found
  const stamp = await stampSources(options.agent)
  const bundle = await readBundle(options)
  const digest = digestOf(bundle)
  const disk = (await findIntact(options, digest)) ?? (await makeDisk(options, digest, bundle))
  // In a cache that cannot be written it is bundled again the next time.
  if (stamp !== undefined) await remember(options.cacheDir, stamp, digest).catch(() => undefined)
  return disk
}

async function findIntact(options: AgentDiskOptions, digest: string): Promise<AgentDisk | undefined> {
  try {
    return await findByDigest(options.cacheDir, digest)
  } catch (error) {
    if (options.replaceDamaged !== true) throw error
    return undefined
  }
}

async function findByDigest(cacheDir: string, digest: string): Promise<AgentDisk | undefined> {
  const directory = path.join(cacheDir, 'agents', digest)
  const manifest = await readImageManifest(directory, AgentManifest)
  if (manifest === undefined) return undefined
  if (manifest.digest !== digest) {
    throw new ImageError(
      'image_damaged',
      `${directory} holds the manifest of another agent (${manifest.digest})`,
      `remove ${directory} and run: caisson image build`,
    )
  }
  await checkFiles(directory, manifest.files)
  return { digest, directory, disk: path.join(directory, 'agent.erofs'), manifest }
}

async function readBundle({ agent, onProgress }: AgentDiskOptions): Promise<AgentBundle> {
  const file = 'bundle' in agent ? agent.bundle : agent.entry
  await stat(file).catch((cause: unknown) => {
    throw new ImageError('sources_missing', `the agent is not at ${file}`, 'install the package again', {
      cause,
    })
  })
  if ('bundle' in agent) {
    const names = await readdir(agent.bundle)
    return new Map(
      await Promise.all(
        names.map(async (name) => [name, await readFile(path.join(agent.bundle, name))] as const),
      ),
    )
  }
  onProgress?.('image: bundling the agent')
  return await bundleAgent(file)
}

async function makeDisk(options: AgentDiskOptions, digest: string, bundle: AgentBundle): Promise<AgentDisk> {
  const tools = await requireAgentTools()
  const directory = path.join(options.cacheDir, 'agents', digest)
  await mkdir(path.dirname(directory), { recursive: true, mode: 0o700 })
  const work = await mkdtemp(path.join(options.cacheDir, 'build-'))
  try {
    const tree = path.join(work, 'tree')
    const out = path.join(work, 'out')
    await Promise.all([mkdir(tree, { mode: 0o755 }), mkdir(out, { mode: 0o700 })])
    for (const [name, content] of bundle) await writeFile(path.join(tree, name), content, { mode: 0o644 })
    await makeErofs(tools['mkfs.erofs'], path.join(out, 'agent.erofs'), tree)
    const bom = describeAgent(digest, bundle.get('packages.json'))
    await writeFile(path.join(out, SBOM_FILE), `${JSON.stringify(bom, null, 1)}\n`)
    const files = await describeFiles(out, ['agent.erofs', SBOM_FILE])
    const manifest: AgentManifest = { manifestVersion: 1, digest, files }
    await writeFile(path.join(out, 'manifest.json'), `${JSON.stringify(manifest, null, 2)}\n`)
    await publish(out, directory, options.replaceDamaged === true)
    await verifyFiles(directory, files)
    return { digest, directory, disk: path.join(directory, 'agent.erofs'), manifest }
  } finally {
    await rm(work, { recursive: true, force: true })
  }
}

async function makeErofs(program: string, disk: string, tree: string): Promise<void> {
  // Not compressed: it is small, and it is read at every cold start.
  const args = ['--quiet', `-T${EPOCH_SECONDS}`, `-U${UUID}`, '-x-1', '--all-root', disk, tree]
  await run(program, args, { timeout: MKFS_DEADLINE_MS, env: {} }).catch((cause: unknown) => {
    throw new ImageError(
      'build_failed',
      `mkfs.erofs failed for the agent disk: ${(cause as Error).message}`,
      'start again',
      {
        cause,
      },
    )
  })
}

/** Another process may have published the same disk meanwhile; then its disk is as good as ours. */
async function publish(out: string, directory: string, replace: boolean): Promise<void> {
  if (replace) await rm(directory, { recursive: true, force: true })
  try {
    await rename(out, directory)
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && ['EEXIST', 'ENOTEMPTY'].includes(String(error.code))))
      throw error
  }
}

/** The digest that the present sources gave last time. */
async function knownDigest({ cacheDir, agent }: AgentDiskOptions): Promise<string | undefined> {
  const stamp = await stampSources(agent)
  if (stamp === undefined) return undefined
  const text = await readFile(path.join(cacheDir, 'agents', `${stamp}.json`), 'utf8').catch(() => '{}')
  const record = z.strictObject({ digest: z.string().regex(DIGEST) }).safeParse(parseJson(text))
  return record.success ? record.data.digest : undefined
}

async function remember(cacheDir: string, stamp: string, digest: string): Promise<void> {
  const file = path.join(cacheDir, 'agents', `${stamp}.json`)
  // Drawn: several of one process may want the same agent at once.
  const draft = `${file}.${randomBytes(6).toString('hex')}`
  await writeFile(draft, JSON.stringify({ digest }), { mode: 0o600 })
  await rename(draft, file)
}

/** A digest over path, size and times of every source, and the Node that compiles; undefined when they are not there. */
async function stampSources(agent: ImageSources['agent']): Promise<string | undefined> {
  const roots = 'bundle' in agent ? [agent.bundle] : [agent.entry, ...agent.watched]
  try {
    const files = [...new Set((await Promise.all(roots.map(listSources))).flat())].sort()
    const stamps = files.map(async (file) => {
      const { ino, size, mtimeNs, ctimeNs } = await stat(file, { bigint: true })
      return `${file} ${ino} ${size} ${mtimeNs} ${ctimeNs}`
    })
    return createHash('sha256')
      .update([agentCacheName, ...(await Promise.all(stamps))].join('\n'))
      .digest('hex')
  } catch (error) {
    if (isMissing(error)) return undefined
    throw error
  }
}

async function listSources(root: string): Promise<string[]> {
  if (!(await stat(root)).isDirectory()) return [root]
  const entries = await readdir(root, { recursive: true, withFileTypes: true })
  return entries
    .filter((entry) => entry.isFile() && !entry.parentPath.split(path.sep).includes('test'))
    .map((entry) => path.join(entry.parentPath, entry.name))
}
