// The folder of one VM in the state folder: its owner, its scratch disk, and sockets for QEMU. Removed with the VM; the
// sweep at the next start removes folders of killed hosts.

import { randomBytes } from 'node:crypto'
import { access, chmod, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import { errnoOf } from '#specs/node/file-error.ts'
import { parseJson } from '../files/json.ts'
import { findProcessesByArgument, judgeProcess, ownIdentity } from '../processes/process-identity.ts'

const RECORD = 'vm.json'
/** Exists while the VM waits in a pool. */
const WAITING = 'waiting'
/** A folder without a record is new, or its maker was killed; after this time it is the latter. */
const DRAFT_LIFETIME_MS = 60_000

const recordSchema = z.strictObject({
  id: z.string().regex(/^vm-[0-9a-f]{12}$/),
  createdAtMs: z.number(),
  host: z.strictObject({ pid: z.number().int().positive(), born: z.string(), world: z.string() }),
})
export type VmRecord = z.infer<typeof recordSchema>

export interface VmFolder {
  readonly id: string
  readonly path: string
  /** Subfolder for sockets, visible to QEMU. */
  readonly sockets: string
  remove(): Promise<void>
}

/** Name of the VM's process in the process list. */
export function processName(id: string): string {
  return `caisson-${id}`
}

/** Creates the folder of a new VM with its record (mode 0700, record 0600). `vms` must exist. */
export async function createVmFolder(vms: string): Promise<VmFolder> {
  const id = `vm-${randomBytes(6).toString('hex')}`
  const path = join(vms, id)
  const draft = join(vms, `.${id}`)
  await mkdir(draft, { mode: 0o700 })
  const record: VmRecord = { id, createdAtMs: Date.now(), host: await ownIdentity() }
  await writeFile(join(draft, RECORD), `${JSON.stringify(record)}\n`, { mode: 0o600 })
  // QEMU may run as another user; only this user can enter the parent folder.
  await mkdir(join(draft, 'sockets'))
  await chmod(join(draft, 'sockets'), 0o711)
  await rename(draft, path)
  const sockets = join(path, 'sockets')
  return { id, path, sockets, remove: () => rm(path, { recursive: true, force: true }) }
}

/** Records for `vm list` whether the VM waits in a pool: no process answers for it then. */
export async function noteWaiting({ path }: Pick<VmFolder, 'path'>, waits: boolean): Promise<void> {
  const file = join(path, WAITING)
  await (waits ? writeFile(file, '', { mode: 0o600 }) : rm(file, { force: true }))
}

/** Whether the VM waits in a pool of its host process. */
export async function isWaiting(vms: string, id: string): Promise<boolean> {
  return await access(join(vms, id, WAITING)).then(
    () => true,
    () => false,
  )
}

/** Records of all VMs in this state folder, of living and dead hosts. */
export async function listVmRecords(vms: string): Promise<VmRecord[]> {
  const records = await Promise.all((await listFolders(vms)).map((name) => readRecord(join(vms, name))))
  return records.filter((record) => typeof record === 'object')
}

/**
 * Removes leftovers of killed host processes: folders, and a QEMU that is still running.
 * @returns the names of the removed folders
 */
export async function sweepDeadVms(vms: string): Promise<string[]> {
  const removed: string[] = []
  for (const name of await listFolders(vms)) {
    const path = join(vms, name)
    const record = await readRecord(path)
    // An unreadable record may belong to a living VM.
    if (record === 'unreadable') continue
    if (record ? (await judgeProcess(record.host)) !== 'dead' : !(await isOld(path))) continue
    if (record) await killLeftover(record.id)
    await rm(path, { recursive: true, force: true })
    removed.push(name)
  }
  return removed
}

async function killLeftover(id: string): Promise<void> {
  for (const pid of await findProcessesByArgument(processName(id))) {
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // It ended by itself meanwhile.
    }
  }
}

async function listFolders(vms: string): Promise<string[]> {
  const entries = await readdir(vms, { withFileTypes: true }).catch(() => [])
  return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name)
}

/** Undefined without a record, or for an invalid one. */
async function readRecord(folder: string): Promise<VmRecord | 'unreadable' | undefined> {
  let text: string
  try {
    text = await readFile(join(folder, RECORD), 'utf8')
  } catch (error) {
    return errnoOf(error) === 'ENOENT' ? undefined : 'unreadable'
  }
  const parsed = recordSchema.safeParse(parseJson(text))
  return parsed.success ? parsed.data : undefined
}

async function isOld(path: string): Promise<boolean> {
  try {
    return Date.now() - (await stat(path)).mtimeMs > DRAFT_LIFETIME_MS
  } catch {
    return false
  }
}
