// Finds what Caisson keeps in its cache and state folders. Only what it knows by its name is ever freed; what else lies in
// the state folder is listed as unknown.

import { lstat, readdir, readFile, stat } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import { RunId } from '#specs/protocol/text.ts'
import { mapBounded } from '../files/bounded-map.ts'
import { findAgentDisk } from '../image/agent-disk.ts'
import { readRecipeKey } from '../image/recipe-key.ts'
import { findSources, type ImageSources } from '../image/sources.ts'
import { isArchiveStage, listStages } from '../journal/archive-stages.ts'
import { listMoments } from '../journal/kept-moments.ts'
import { begunAt } from '../journal/run-query.ts'
import { RunStore, type RunSummary } from '../journal/run-store.ts'
import { isLeftLock } from '../locks/file-lock.ts'
import { judgeProcess } from '../processes/process-identity.ts'
import { type Folders, isUploadedWorkspace, serviceWorkspaces, stagePrefix } from '../state/folders.ts'
import { isTemplateName } from '../vm/template/template-name.ts'
import { findOldTemplates } from '../vm/template/template-store.ts'
import { listVmRecords } from '../vm/vm-folder.ts'
import { basesOf } from '../workspace/index.ts'
import { type FolderUsage, findUsage } from './in-use.ts'
import { type Kept, type KeptKind, keptKinds, measure } from './kept.ts'

/** Folder of a VM, and its draft. */
const VM_NAME = /^\.?vm-[0-9a-f]{12}$/
const DIGEST = /^[0-9a-f]{64}$/
/** What is older than this and still has the name of unfinished work was left by a killed process. */
const ABANDONED_MS = 60 * 60 * 1000
/** A run can still be started on an uploaded workspace. */
const UNUSED_UPLOAD_MS = 24 * 60 * 60 * 1000
/** A folder of a VM without a record is being made, or was left by a killed process: after this it is the latter. */
const VM_DRAFT_MS = 60 * 1000

interface InventoryOptions {
  readonly folders: Folders
  /** Recipe and agent that tell what is current; default: this checkout's or package's. */
  readonly sources?: Pick<ImageSources, 'recipe' | 'agent'>
  /** ms since 1970. */
  readonly now: number
}

/** Everything kept, by kind, the largest first. */
export async function listKept({ folders, now, sources = findSources() }: InventoryOptions): Promise<Kept[]> {
  const usage = await findUsage(folders)
  const { cache } = folders
  const parts = await Promise.all([
    listImages(cache, sources.recipe, usage),
    listAgents(cache, sources.agent, usage),
    listTemplates(cache, usage, now),
    listDownloads(cache, sources.recipe),
    listProbes(cache),
    listWork(cache, now),
    listLeftLocks(folders),
    listLeftImports(folders),
    listUploads(folders, now),
    listDeadVms(folders.vms, now),
    listMomentsOfRuns(folders),
    listRuns(folders),
    listUnknown(folders),
  ])
  const rank = (kind: KeptKind) => keptKinds.indexOf(kind)
  return parts.flat().sort((a, b) => rank(a.kind) - rank(b.kind) || b.bytes - a.bytes)
}

async function listImages(cache: string, recipe: string, usage: FolderUsage): Promise<Kept[]> {
  const keys = await Promise.all((['amd64', 'arm64'] as const).map((arch) => readRecipeKey(recipe, arch)))
  const current = new Set(keys.map(({ key }) => key))
  return await listFolders('image', path.join(cache, 'images'), usage, (name) => current.has(name))
}

async function listAgents(cache: string, agent: ImageSources['agent'], usage: FolderUsage): Promise<Kept[]> {
  // A damaged one is not what the next run would take.
  const current = await findAgentDisk({ cacheDir: cache, agent }).catch(() => undefined)
  return await listFolders('agent', path.join(cache, 'agents'), usage, (name) => name === current?.digest)
}

async function listTemplates(cache: string, usage: FolderUsage, now: number): Promise<Kept[]> {
  const folder = path.join(cache, 'templates')
  const names = (await namesIn(folder)).filter(isTemplateName)
  const templates = await Promise.all(
    names.map(async (name) => {
      const place = path.join(folder, name)
      return { name, usedAtMs: await lastUse(place), bytes: (await measure(place)).bytes }
    }),
  )
  const old = findOldTemplates(templates, now)
  return await listFolders('template', folder, usage, (name) => !old.has(name))
}

/** The folders named by a digest in `folder`. */
async function listFolders(
  kind: 'image' | 'agent' | 'template',
  folder: string,
  usage: FolderUsage,
  isCurrent: (name: string) => boolean,
): Promise<Kept[]> {
  const names = (await namesIn(folder)).filter((name) => /^[0-9a-f]{16,64}$/.test(name))
  return await Promise.all(
    names.map(async (name) => {
      const place = path.join(folder, name)
      const { bytes, inodes } = await measure(place)
      const usedAt = await lastUse(place)
      const current = isCurrent(name)
      const isBusy = usage.uses(name, inodes) || (current && usage.isBusy)
      const state = isBusy ? 'busy' : current ? 'current' : 'old'
      return { kind, name, path: place, bytes, usedAt, state } as const
    }),
  )
}

/** The record of a folder is touched when it is used (templates) or written when it is made. */
async function lastUse(place: string): Promise<number> {
  const names = ['template.json', 'used', 'manifest.json']
  const times = await Promise.all(names.map((name) => timeOf(path.join(place, name))))
  return Math.max(...times) || (await timeOf(place))
}

async function listDownloads(cache: string, recipe: string): Promise<Kept[]> {
  const folder = path.join(cache, 'downloads')
  const locked = new Set(
    (await readFile(path.join(recipe, 'packages.lock.json'), 'utf8')).match(/(?<=")[0-9a-f]{64}(?=")/g),
  )
  const names = (await namesIn(folder)).filter((name) => /^[0-9a-f]{64}\.(?:deb|node)(?:\.\d+)?$/.test(name))
  return await Promise.all(
    names.map(async (name) => {
      const file = path.join(folder, name)
      const state = locked.has(name.slice(0, 64)) ? 'current' : 'old'
      return await describe('download', file, state)
    }),
  )
}

/** What the accelerators of this machine were found to do. */
async function listProbes(cache: string): Promise<Kept[]> {
  const folder = path.join(cache, 'machines')
  const names = (await namesIn(folder)).filter((name) => /^[0-9a-f]+\.json$/.test(name))
  return await Promise.all(names.map((name) => describe('probe', path.join(folder, name), 'current')))
}

/** Work folders of builds in the cache, and of templates that were being made or removed. */
async function listWork(cache: string, now: number): Promise<Kept[]> {
  const templates = path.join(cache, 'templates')
  const builds = (await namesIn(cache)).filter((name) => /^build-\w+$/.test(name))
  const drafts = (await namesIn(templates)).filter((name) => /^\.(?:[0-9a-f]{16,64}|removed)-\w+$/.test(name))
  const places = [
    ...builds.map((name) => ({ place: path.join(cache, name), note: 'unfinished build' })),
    ...drafts.map((name) => ({ place: path.join(templates, name), note: 'unfinished template' })),
  ]
  return await Promise.all(
    places.map(async ({ place, note }) => {
      const entry = await describe('leftover', place, 'old')
      return { ...entry, note, state: now - entry.usedAt > ABANDONED_MS ? 'old' : 'busy' } as const
    }),
  )
}

/** Lock files that killed processes left. One that a process holds is removed by that process. */
async function listLeftLocks({ locks, cache }: Folders): Promise<Kept[]> {
  const folders = [locks, ...['images', 'agents', 'templates'].map((name) => path.join(cache, name))]
  const places = await Promise.all(
    folders.map(async (folder) => {
      const names = (await namesIn(folder)).filter((name) => name.endsWith('.lock'))
      return names.map((name) => path.join(folder, name))
    }),
  )
  const kept = await mapBounded(places.flat(), async (place) => {
    if (!(await isLeftLock(place))) return undefined
    return { ...(await describe('leftover', place, 'old')), note: 'lock of a process that was killed' }
  })
  return kept.filter((entry) => entry !== undefined)
}

/** Folders of imports and exports. */
async function listLeftImports(folders: Folders): Promise<Kept[]> {
  const stages = await listStages(folders)
  return await Promise.all(
    stages.map(async ({ place, use, isBusy }) => {
      const entry = await describe('leftover', place, isBusy ? 'busy' : 'old')
      return { ...entry, note: isBusy ? `an ${use} is at work` : `unfinished ${use}` }
    }),
  )
}

/** Folders of VMs whose host process is dead. Those of living ones belong to them. */
async function listDeadVms(vms: string, now: number): Promise<Kept[]> {
  const records = new Map((await listVmRecords(vms)).map((record) => [record.id, record]))
  const kept = await Promise.all(
    (await namesIn(vms)).map(async (name) => {
      const record = records.get(name)
      const entry = await describe('leftover', path.join(vms, name), 'old')
      const isDead = record
        ? (await judgeProcess(record.host)) === 'dead'
        : VM_NAME.test(name) && now - entry.usedAt > VM_DRAFT_MS
      return isDead ? { ...entry, note: 'its process is dead' } : undefined
    }),
  )
  return kept.filter((entry) => entry !== undefined)
}

/** What ended runs keep to be forked. */
async function listMomentsOfRuns(folders: Folders): Promise<Kept[]> {
  const store = new RunStore(folders)
  const live = await store.live()
  const kept = await listMoments(store)
  return kept.map(({ runId, endedAt, bytes }) => ({
    kind: 'moments',
    name: runId,
    path: store.paths(runId).moments,
    bytes,
    usedAt: endedAt,
    state: live.has(runId) ? 'busy' : 'old',
  }))
}

async function listRuns(folders: Folders): Promise<Kept[]> {
  const store = new RunStore(folders)
  return await mapBounded(await store.list(), async (run) => {
    const { directory, hibernated, kept, scratch, moments } = store.paths(run.id)
    // Its moments are an entry of their own.
    const [whole, apart] = await Promise.all([measure(directory), measure(moments)])
    const bytes = whole.bytes - apart.bytes
    // One that sleeps waits as long as its person likes.
    const state = run.isLive || run.status === 'sleeping' ? 'busy' : 'ended'
    const known = [hibernated, kept]
      .flatMap((place) => [place, `${place}.draft`])
      .concat(scratch, moments, basesOf(directory))
      .map((place) => path.basename(place))
    const entries = await readdir(directory, { withFileTypes: true }).catch(() => [])
    const unknown = entries.filter((entry) => entry.isDirectory() && !known.includes(entry.name))
    const names = unknown.map(({ name }) => `folder ${name} of another version, `).join('')
    const note = `${names}${noteOf(run)}`
    return {
      kind: 'run',
      name: run.id,
      path: directory,
      bytes,
      usedAt: begunAt(run),
      state,
      note,
    } as const
  })
}

/** Uploaded workspaces that no run names, and those of uploads that did not end. */
async function listUploads(folders: Folders, now: number): Promise<Kept[]> {
  const folder = serviceWorkspaces(folders.home)
  const names = (await namesIn(folder)).filter(
    (name) => isUploadedWorkspace(name) || name.startsWith(stagePrefix),
  )
  if (names.length === 0) return []
  const used = new Set((await new RunStore(folders).list()).map(({ workspace }) => path.basename(workspace)))
  const unused = names.filter((name) => !used.has(name))
  return await Promise.all(
    unused.map(async (name) => {
      const entry = await describe('leftover', path.join(folder, name), 'old')
      const isWhole = isUploadedWorkspace(name)
      const note = isWhole ? 'uploaded workspace that no run uses' : 'unfinished upload'
      const state = now - entry.usedAt > (isWhole ? UNUSED_UPLOAD_MS : ABANDONED_MS) ? 'old' : 'busy'
      return { ...entry, note, state } as const
    }),
  )
}

/** Folders that another version made, or a person. */
async function listUnknown({ home, runs, vms, locks, cache, config }: Folders): Promise<Kept[]> {
  const own = [runs, vms, locks, cache, config, serviceWorkspaces(home)]
  const isOwn = (place: string) => own.some((folder) => folder === place || folder.startsWith(`${place}/`))
  const below = async (folder: string, isKnown: (place: string) => boolean) => {
    const entries = await readdir(folder, { withFileTypes: true }).catch(() => [])
    const places = entries.filter((entry) => entry.isDirectory()).map(({ name }) => path.join(folder, name))
    return places.filter((place) => !isKnown(place))
  }
  const isRun = (place: string) =>
    RunId.safeParse(path.basename(place)).success || isArchiveStage(path.basename(place))
  const places = [
    ...(await below(home, isOwn)),
    ...(await below(runs, isRun)),
    ...(await below(vms, (place) => VM_NAME.test(path.basename(place)))),
  ]
  return await Promise.all(
    places.map(async (place) => ({
      ...(await describe('unknown', place, 'unknown')),
      note: `not of this version: ${place}`,
    })),
  )
}

function noteOf({ prompt, state, status, problem }: RunSummary): string {
  if (problem !== undefined) return 'damaged journal'
  const { changes, applied, end } = state
  const open = changes !== null && changes.entries > 0 && applied === null ? ', changes not applied' : ''
  return `${end?.outcome ?? (status === 'sleeping' ? 'sleeping' : 'not ended')}${open}: ${prompt}`
}

async function describe(kind: KeptKind, place: string, state: Kept['state']): Promise<Kept> {
  const { bytes } = await measure(place)
  return { kind, name: path.basename(place), path: place, bytes, usedAt: await timeOf(place), state }
}

async function namesIn(folder: string): Promise<string[]> {
  return await readdir(folder).catch(() => [])
}

async function timeOf(place: string): Promise<number> {
  return (await lstat(place).catch(() => undefined))?.mtimeMs ?? 0
}

const Remembered = z.object({ digest: z.string().regex(DIGEST) })

/** The notes `agents/STAMP.json` that point to an agent that is not there. */
export async function listStaleNotes(cache: string): Promise<string[]> {
  const folder = path.join(cache, 'agents')
  const names = (await namesIn(folder)).filter((name) => /^[0-9a-f]{64}\.json$/.test(name))
  const stale = await Promise.all(
    names.map(async (name) => {
      const file = path.join(folder, name)
      try {
        const { digest } = Remembered.parse(JSON.parse(await readFile(file, 'utf8')))
        await stat(path.join(folder, digest))
        return undefined
      } catch {
        return file
      }
    }),
  )
  return stale.filter((file) => file !== undefined)
}
