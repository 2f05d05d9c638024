/** The user's VMs over all host processes: lists them and finds one by name. */

import path from 'node:path'
import { CaissonError, requireText } from '#specs/errors.ts'
import { judgeProcess } from '../processes/process-identity.ts'
import { checkFolderIfThere, type Folders } from '../state/folders.ts'
import { isWaiting, listVmRecords, type VmRecord } from '../vm/vm-folder.ts'
import type { VmDetails, VmInfo } from './messages.ts'
import { controlSocketName } from './server.ts'
import { VmClient } from './vm-client.ts'

/** A listed VM. One that is starting, waits in a pool, or does not answer has few fields. */
export interface VmEntry
  extends Omit<VmInfo, 'state' | 'memoryBytes' | 'cpus' | 'pid' | 'accelerator' | 'confinement'> {
  readonly state: VmInfo['state'] | 'waiting' | 'unreachable'
  readonly memoryBytes: number | null
  readonly cpus: number | null
  readonly pid: number | null
}

/** A starting VM has a socket within this time; later it is stuck, or of another version. */
const startMaxMs = 180_000

export class VmDirectory {
  readonly #vms: string

  constructor(folders: Pick<Folders, 'vms'>) {
    this.#vms = folders.vms
  }

  /** Socket path of a VM's host process. */
  socketOf(id: string): string {
    requireText('the ID of the VM', id)
    return path.join(this.#vms, id, controlSocketName)
  }

  /** Oldest first. Excludes VMs whose host process is dead. @throws {CaissonError} `state_unavailable` */
  async list(): Promise<VmEntry[]> {
    const entries = await Promise.all((await this.#living()).map((record) => this.#describe(record)))
    return entries.sort((a, b) => a.createdAtMs - b.createdAtMs)
  }

  /**
   * All that the host knows of each VM, with what it uses of this machine now, oldest first. Leaves out VMs that are
   * starting, wait in a pool or do not answer. @throws {CaissonError} `state_unavailable`
   */
  async inspectAll(): Promise<VmDetails[]> {
    const clients = await this.#clients()
    const found = await Promise.all(clients.map((client) => client.inspect().catch(() => null)))
    return found.filter((details) => details !== null).sort((a, b) => a.createdAtMs - b.createdAtMs)
  }

  /**
   * The only running VM; null if there is none. @throws {CaissonError} `vm_not_found` when there are several
   * @throws {CaissonError} `state_unavailable`
   */
  async findOnly(): Promise<VmClient | null> {
    const clients = await this.#clients()
    return clients.length > 1 ? one(clients, `${clients.length} VMs run`) : (clients[0] ?? null)
  }

  /**
   * The VM by its id, its run's id, a unique prefix of either, or `last` (most recent).
   * @throws {CaissonError} `vm_not_found`
   * @throws {CaissonError} `state_unavailable`
   */
  async find(name: string): Promise<VmClient> {
    requireText('the name of the VM', name)
    const clients = await this.#clients()
    if (name === 'last') return newest(clients)
    const found = clients.filter(({ info }) => isCalled(info, name))
    return one(found, `"${name}" matches ${found.length} VMs`, name)
  }

  async #clients(): Promise<VmClient[]> {
    const clients = await Promise.all(
      (await this.#living()).map(({ id }) => VmClient.connect(this.socketOf(id)).catch(() => null)),
    )
    return clients.filter((client) => client !== null)
  }

  async #living(): Promise<VmRecord[]> {
    // A process that listens there receives the keys typed into a shell.
    await checkFolderIfThere(this.#vms)
    const records = await listVmRecords(this.#vms)
    const verdicts = await Promise.all(records.map(({ host }) => judgeProcess(host)))
    return records.filter((_, index) => verdicts[index] !== 'dead')
  }

  async #describe({ id, createdAtMs, host }: VmRecord): Promise<VmEntry> {
    try {
      const { accelerator: _, confinement: __, ...info } = (await VmClient.connect(this.socketOf(id))).info
      return info
    } catch {
      const isYoung = Date.now() - createdAtMs < startMaxMs
      const state = (await isWaiting(this.#vms, id)) ? 'waiting' : isYoung ? 'starting' : 'unreachable'
      const unknown = { runId: null, directory: null, memoryBytes: null, cpus: null, pid: null }
      return { id, state, createdAtMs: Math.trunc(createdAtMs), hostPid: host.pid, ...unknown }
    }
  }
}

function one(found: readonly VmClient[], several: string, name = ''): VmClient {
  const [first, ...more] = found
  if (first === undefined)
    throw new CaissonError('vm_not_found', `no running VM has the name or run "${name}"`, {
      remedy: 'list the VMs: caisson vm list, host.vms.list()',
    })
  if (more.length === 0) return first
  throw new CaissonError(
    'vm_not_found',
    `${several}; name one of: ${found.map(({ info }) => info.id).join(', ')}`,
  )
}

function newest(clients: readonly VmClient[]): VmClient {
  const [first] = clients.toSorted((a, b) => b.info.createdAtMs - a.info.createdAtMs)
  if (first === undefined) throw new CaissonError('vm_not_found', 'no VM is running')
  return first
}

function isCalled({ id, runId }: VmInfo, name: string): boolean {
  return [id, id.replace('vm-', ''), runId ?? '', (runId ?? '').replace('run-', '')].some(
    (known) => known !== '' && name !== '' && known.startsWith(name),
  )
}
