/**
 * Checks an unpacked run before it becomes one: every digest that its journal names, every form that a later command
 * reads, and the disks that QEMU gets. Whatever does not fit refuses the whole.
 */
import { hash } from 'node:crypto'
import { closeSync, existsSync, openSync } from 'node:fs'
import { open, readdir, readFile, stat } from 'node:fs/promises'
import path from 'node:path'
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import { parseJson } from '../files/json.ts'
import { scanJournal } from '../journal/journal-lines.ts'
import { RunFold } from '../journal/run-outline.ts'
import { Recording } from '../recording/replay.ts'
import { manifestFile } from '../runs/prepare.ts'
import { ReplaySetup } from '../runs/replay/setup.ts'
import { SealedLayers } from '../vm/checkpoints/checkpoint-disk.ts'
import { basesOf, digestErofsFile, type Manifest, readChangeSet, readManifest } from '../workspace/index.ts'
import { checkQcow2 } from './check-qcow2.ts'
import { type ArchiveManifest, invalidArchive } from './format.ts'

/** What the journal says of the files. */
interface Facts {
  readonly fold: RunFold
  readonly workspaceReady: Extract<HostEvent, { type: 'workspace-ready' }> | undefined
  readonly changesReady: Extract<HostEvent, { type: 'changes-ready' }> | undefined
}

/** @returns the fold of its journal @throws {CaissonError} `invalid_archive` */
export async function checkFolder(folder: string, manifest: ArchiveManifest): Promise<RunFold> {
  try {
    const facts = await checkJournal(folder, manifest)
    const base = await checkWorkspace(folder, facts)
    await checkChanges(folder, facts)
    await checkBases(folder)
    await checkTexts(folder, manifest.runId)
    await checkDisks(folder, manifest, facts, base)
    return facts.fold
  } catch (error) {
    if (error instanceof CaissonError && error.code === 'invalid_archive') throw error
    throw invalidArchive(CaissonError.from(error).message, error)
  }
}

async function checkJournal(folder: string, { runId, journal }: ArchiveManifest): Promise<Facts> {
  const fold = new RunFold()
  let workspaceReady: Facts['workspaceReady']
  let changesReady: Facts['changesReady']
  const { end, tornBytes } = await scanJournal(path.join(folder, 'journal.jsonl'), runId, (line, at) => {
    fold.next(line, at)
    if (line.event.type === 'workspace-ready') workspaceReady = line.event
    if (line.event.type === 'changes-ready') changesReady = line.event
  })
  const isWhole = end.seq === journal.events && end.bytes === journal.bytes && end.hash === journal.head
  if (!isWhole || tornBytes > 0) throw invalidArchive('its journal is another than its manifest says')
  if (fold.facts.startedAt === null) throw invalidArchive('its journal has no start of a run')
  return { fold, workspaceReady, changesReady }
}

/** The manifest of the workspace. Undefined: the run ended before it had one. */
async function checkWorkspace(folder: string, { workspaceReady }: Facts): Promise<Manifest | undefined> {
  const isThere = existsSync(manifestFile(folder))
  if (workspaceReady === undefined) {
    if (isThere) throw invalidArchive('it has a manifest of files that its journal does not name')
    return undefined
  }
  const manifest = await readManifest(
    manifestFile(folder),
    workspaceReady.manifestSha256,
    limits.workspaceMaxEntries,
  )
  if (!manifest.ok) throw invalidArchive(manifest.error.message)
  return manifest.value
}

async function checkChanges(folder: string, { changesReady }: Facts): Promise<void> {
  const contents = await sizeOf(path.join(folder, 'changes.bin'))
  if (changesReady === undefined) {
    if (contents !== undefined || existsSync(path.join(folder, 'changes.jsonl')))
      throw invalidArchive('it has changes that its journal does not name')
    return
  }
  const changes = await readChangeSet(folder, changesReady.sha256)
  if (!changes.ok) throw invalidArchive(changes.error.message)
  if (contents !== changes.value.contentBytes) throw invalidArchive('the contents of its changes are cut off')
  for (const entry of changes.value.entries.values())
    if (entry.kind === 'file' && entry.offset + entry.size > contents)
      throw invalidArchive('a change has content that is not there')
}

async function checkBases(folder: string): Promise<void> {
  for (const name of await readdir(basesOf(folder)).catch(() => [])) {
    if (hash('sha256', await readFile(path.join(basesOf(folder), name))) !== name)
      throw invalidArchive(`base/${name} has another digest`)
  }
}

async function checkTexts(folder: string, runId: string): Promise<void> {
  const setup = path.join(folder, 'replay.json')
  if (existsSync(setup)) {
    const parsed = ReplaySetup.safeParse(parseJson(await readFile(setup, 'utf8')))
    if (!parsed.success || parsed.data.task.runId !== runId)
      throw invalidArchive('its replay.json cannot be read')
  }
  const exchanges = path.join(folder, 'exchanges.jsonl')
  if (!existsSync(exchanges)) return
  const { header } = await Recording.read(exchanges)
  if (header.runId !== runId) throw invalidArchive('its recording is of another run')
}

const DiskFiles = z
  .array(
    z.tuple([
      z.string(),
      z
        .int()
        .min(0)
        .max(2 ** 32),
    ]),
  )
  .max(10_000_000)
const DiskRecord = z.strictObject({ version: z.literal(1), diskBytes: z.int().min(1), sealed: SealedLayers })

async function checkDisks(
  folder: string,
  { canContinue, members }: ArchiveManifest,
  { fold }: Facts,
  base: Manifest | undefined,
): Promise<void> {
  const has = (name: string) => members.some((member) => member.name === name)
  if (has('workspace.erofs') !== has('workspace-files.json'))
    throw invalidArchive('it has a part of the workspace alone')
  if (has('workspace.erofs')) {
    if (base === undefined) throw invalidArchive('it has a disk of files that its journal does not name')
    await checkBase(folder, base)
  }
  const scratch = members.filter(({ name }) => name.startsWith('scratch/')).map(({ name }) => name)
  const hasEnded = fold.state.end !== null
  if (canContinue && hasEnded) throw invalidArchive('its run has ended, and it says that it can be continued')
  const canFork = hasEnded && scratch.length > 0
  if (!canContinue && !canFork) {
    if (scratch.length > 0 || has('run.json'))
      throw invalidArchive('it has a part of a disk, and its run can be neither continued nor forked')
    return
  }
  if (!has('run.json')) throw invalidArchive('the options of its run are missing')
  const { checkpoint } = fold.state
  if (checkpoint === null) {
    if (scratch.length > 0) throw invalidArchive('it has a disk without a checkpoint')
    return
  }
  if (!has('workspace.erofs')) throw invalidArchive('the workspace of its run is missing')
  await checkScratch(folder, scratch, checkpoint.checkpointId)
}

/** The host reads files of the disk by position: each has the content that the manifest names. */
async function checkBase(folder: string, manifest: Manifest): Promise<void> {
  const text = await readFile(path.join(folder, 'workspace-files.json'), 'utf8')
  const positions = DiskFiles.safeParse(parseJson(text))
  if (!positions.success) throw invalidArchive('workspace-files.json cannot be read')
  const byPath = new Map(positions.data)
  const disk = openSync(path.join(folder, 'workspace.erofs'), 'r')
  try {
    let files = 0
    for (const entry of manifest.entries.values()) {
      if (entry.kind !== 'file') continue
      files += 1
      const position = byPath.get(entry.path)
      const digest = position === undefined ? undefined : digestErofsFile(disk, position, entry.size)
      if (digest !== entry.sha256)
        throw invalidArchive(`the disk of the workspace has another file at ${JSON.stringify(entry.path)}`)
    }
    if (files !== byPath.size)
      throw invalidArchive('the disk of the workspace has more files than its manifest')
  } finally {
    closeSync(disk)
  }
}

async function checkScratch(folder: string, names: readonly string[], checkpointId: string): Promise<void> {
  const record = DiskRecord.safeParse(parseJson(await readText(path.join(folder, 'scratch/disk.json'))))
  if (!record.success) throw invalidArchive('scratch/disk.json cannot be read')
  const { diskBytes, sealed } = record.data
  if (sealed.at(-1)?.checkpoint !== checkpointId)
    throw invalidArchive(`its disk does not end at the checkpoint ${checkpointId}`)
  const expected = new Set(
    ['disk.json', 'base.raw', ...sealed.map(({ file }) => file)].map((name) => `scratch/${name}`),
  )
  if (expected.size !== names.length || !names.every((name) => expected.has(name)))
    throw invalidArchive('the files of its disk are others than its record names')
  if ((await sizeOf(path.join(folder, 'scratch/base.raw'))) !== diskBytes)
    throw invalidArchive('scratch/base.raw has another size')
  for (const { file } of sealed) {
    await using layer = await open(path.join(folder, 'scratch', file), 'r')
    await checkQcow2(layer, `scratch/${file}`, diskBytes)
  }
}

async function sizeOf(file: string): Promise<number | undefined> {
  return (await stat(file).catch(() => undefined))?.size
}

async function readText(file: string): Promise<string> {
  return await readFile(file, 'utf8').catch(() => '')
}
