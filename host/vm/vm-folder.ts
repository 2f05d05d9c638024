// The folder of one VM under the state folder: who owns it, its scratch disk, and sockets for QEMU.
// It goes with the VM; what a killed host left is cleared by the sweep at the next start.

import { randomBytes } from 'node:crypto'
import { access, chmod, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import { parseJson } from '../files/json.ts'
import { findProcessesByArgument, judgeProcess, ownIdentity } from '../processes/process-identity.ts'

const RECORD = 'vm.json'
/** There while the VM waits in a pool. */
const WAITING = 'waiting'
/** A folder without a record is being made right now, or its maker was killed: after this it is the latter. */
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
  /** A folder below it that QEMU sees, for sockets. */
  readonly sockets: string
  remove(): Promise<void>
}

/** Name of the VM's process in the process list. */
export function processName(id: string): string {
  return `caisson-${id}`
}

/** Makes the folder of a new VM with its record (mode 0700, record 0600). `vms` must exist. */
export async function createVmFolder(vms: string): Promise<VmFolder> {
  const id = `vm-${randomBytes(6).toString('hex')}`
  const path = join(vms, id)
  const draft = join(vms, `.${id}`)
  await mkdir(draft, { mode: 0o700 })
  const record: VmRecord = { id, createdAtMs: Date.now(), host: await ownIdentity() }
  await writeFile(join(draft, RECORD), `${JSON.stringify(record)}\n`, { mode: 0o600 })
  // QEMU may be another user; the folder above is ours alone.
  await mkdir(join(draft, 'sockets'))
  await chmod(join(draft, 'sockets'), 0o711)
  await rename(draft, path)
  const sockets = join(path, 'sockets')
  return { id, path, sockets, remove: () => rm(path, { recursive: true, force: true }) }
}

/** Notes whether the VM waits for work, for whoever lists VMs: nobody answers for it then. */
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

/** Records of the VMs in this state folder, of living and dead hosts. */
export async function listVmRecords(vms: string): Promise<VmRecord[]> {
  const records = await Promise.all((await listFolders(vms)).map((name) => readRecord(join(vms, name))))
  return records.filter((record) => typeof record === 'object')
}

/**
 * Clears what killed host processes left: folders, and a QEMU should one be about after all.
 * @returns the names of the folders removed
 */
export async function sweepDeadVms(vms: string): Promise<string[]> {
  const removed: string[] = []
  for (const name of await listFolders(vms)) {
    const path = join(vms, name)
    const record = await readRecord(path)
    // What cannot be looked at now may be of a VM that lives.
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
      // It ended by itself in between.
    }
  }
}

async function listFolders(vms: string): Promise<string[]> {
  const entries = await readdir(vms, { withFileTypes: true }).catch(() => [])
  return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name)
}

/** Undefined without a record, or with none of this form. */
async function readRecord(folder: string): Promise<VmRecord | 'unreadable' | undefined> {
  let text: string
  try {
    text = await readFile(join(folder, RECORD), 'utf8')
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'ENOENT' ? undefined : 'unreadable'
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
