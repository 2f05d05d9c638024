/**
 * A VM without a task: started with an empty workspace or a copy of a directory, reachable by its control socket, gone with
 * all that was done in it. There is no model route, and no network access unless the caller opens one.
 */

import { closeSync, openSync } from 'node:fs'
import path from 'node:path'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { limits } from '#specs/protocol/limits.ts'
import { workspaceOpen } from '#specs/protocol/methods.ts'
import { GuestAccess } from '../control/guest-access.ts'
import type { VmInfo } from '../control/messages.ts'
import { serveVm } from '../control/serve-vm.ts'
import type { ControlServer } from '../control/server.ts'
import { type AgentLink, openAgentLink } from '../guest/agent-link.ts'
import type { Image } from '../image/image.ts'
import { BoundedLog } from '../journal/bounded-log.ts'
import type { RunChanges } from '../runs/changes.ts'
import { ChangeStream } from '../runs/guest/change-stream.ts'
import { warmUp } from '../runs/guest/warm-up.ts'
import { KeptRules } from '../runs/ignore-rule-changes.ts'
import { requireValue } from '../runs/prepare.ts'
import { type Folders, prepareFolders } from '../state/folders.ts'
import { pauseVm, unpauseVm } from '../vm/hibernation/pause.ts'
import { GuestUnresponsiveError, openVm } from '../vm/open-vm.ts'
import type { Vm } from '../vm/vm.ts'
import { createVmFolder } from '../vm/vm-folder.ts'
import type { VmOptions } from '../vm/vm-options.ts'
import { buildDisk, checkDirectory, readFromDisk, scanWorkspace } from '../workspace/index.ts'
import { type CollectedSandbox, collectSandbox, dropUnapplied } from './sandbox-changes.ts'
import type { SandboxNetwork } from './sandbox-network.ts'

const requestTimeoutMs = 60_000

export interface StandaloneVmOptions {
  readonly image: Image
  readonly folders: Folders
  readonly vm?: VmOptions
  /** Its content goes in as the workspace; absent: an empty one. */
  readonly directory?: string
  /** What programs reach outside; absent: nothing. Closed with the VM. */
  readonly network?: (log: (entry: object) => void) => SandboxNetwork
  readonly signal?: AbortSignal
}

/** Where a VM without a run keeps its agent's log, in its own folder. */
export const standaloneVmLogName = 'agent.jsonl'

export class StandaloneVm implements AsyncDisposable {
  readonly vm: Vm
  /** Resolves when its agent has answered and the workspace is there; rejects with a {@link CaissonError}. */
  readonly ready: Promise<void>
  readonly #link: AgentLink
  readonly #access = new GuestAccess({ link: () => this.#link, ready: () => this.ready })
  readonly #log: BoundedLog
  readonly #network: SandboxNetwork | undefined
  readonly #stopped = Promise.withResolvers<void>()
  /** What its workspace is a copy of; absent: of nothing. */
  #copied: (Pick<CollectedSandbox, 'manifest' | 'readBefore' | 'image' | 'folders'> & Disposable) | undefined
  #changes = new ChangeStream('')
  /** Ids of its change sets that are applied in part or whole. */
  readonly #applied: string[] = []
  #collecting: Promise<RunChanges | undefined> = Promise.resolve(undefined)
  #server: ControlServer | undefined
  #closed: Promise<void> | undefined
  #state: VmInfo['state'] = 'starting'

  private constructor(vm: Vm, log: BoundedLog, cloned: boolean, network: StandaloneVmOptions['network']) {
    this.vm = vm
    this.#log = log
    this.#network = network?.((entry) => log.write({ at: Date.now(), from: 'network', ...entry }))
    this.#link = this.#openLink(cloned)
    this.ready = this.#open()
    this.ready.catch(() => undefined)
  }

  /** Resolves when somebody asked by `caisson vm stop` that it ends; the owner disposes it then. */
  get stopped(): Promise<void> {
    return this.#stopped.promise
  }

  /**
   * Starts the VM; returns when its init is ready, and for a copy of a template when its agent is. @throws
   * {VmError} @throws {CaissonError} for the directory
   */
  static async open(given: StandaloneVmOptions): Promise<StandaloneVm> {
    const { image, folders, directory, signal, vm = {} } = given
    const { disk, start = 'auto', ...size } = vm
    await prepareFolders(folders)
    await using disks = new AsyncDisposableStack()
    const copied = directory === undefined ? undefined : await makeDisk(given, directory, disks)
    const workspace = copied === undefined ? {} : { workspaceDisk: copied.file }
    const stopper = signal === undefined ? {} : { signal }
    const options = { ...size, ...workspace, ...stopper, image: disk ?? image, folders }
    const bench = await openVm(options, { start, warmUp }, async ({ vm, origin }) => {
      const cloned = origin.from === 'template'
      const logFile = path.join(folders.vms, vm.id, standaloneVmLogName)
      const log = await BoundedLog.open(logFile, limits.runMaxLogBytes)
      const opened = new StandaloneVm(vm, log, cloned, given.network)
      try {
        // A copy that does not answer is left for a boot; a boot that does not is what a developer looks into.
        if (cloned) await opened.ready
        return opened
      } catch (error) {
        await opened[Symbol.asyncDispose]()
        signal?.throwIfAborted()
        throw new GuestUnresponsiveError(errorMessage(error), {
          cause: error,
        })
      }
    })
    try {
      if (copied !== undefined) bench.#copied = { ...copied.openDisk(), image, folders }
      await bench.#serve(folders, directory ?? null)
      return bench
    } catch (error) {
      await bench[Symbol.asyncDispose]()
      throw error
    }
  }

  /**
   * What differs now from the directory that it is a copy of. Replaces the change set of an earlier call unless
   * something of that is applied. Calls wait for each other.
   * @throws {CaissonError} `not_possible_now` for an empty workspace, or when files changed meanwhile
   */
  async collect(): Promise<RunChanges> {
    const copied = this.#copied
    if (copied === undefined)
      throw new CaissonError(
        'not_possible_now',
        'the sandbox has no changes: it was opened without `workspace`',
      )
    const before = this.#collecting.catch(() => undefined)
    const collecting = before.then(async (earlier) => {
      const isDropped = earlier === undefined || (await dropUnapplied(earlier, copied.folders))
      if (!isDropped && !this.#applied.includes(earlier.runId)) this.#applied.push(earlier.runId)
      const parts = { ...copied, vmId: this.vm.id, link: this.#link, applied: this.#applied }
      return await collectSandbox(parts, (runId) => {
        this.#changes = new ChangeStream(runId)
        return this.#changes
      })
    })
    this.#collecting = collecting
    collecting.catch(() => undefined)
    return await collecting
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed ??= this.#close()
    await this.#closed
  }

  async #close(): Promise<void> {
    this.#state = 'stopping'
    await this.#network?.close()
    await this.#link[Symbol.asyncDispose]()
    await this.vm.stop()
    await this.#collecting.catch(() => undefined)
    this.#copied?.[Symbol.dispose]()
    await this.#log[Symbol.asyncDispose]()
    // Last: who waits for the end of the VM learns when it has gone.
    await this.#server?.[Symbol.asyncDispose]()
  }

  async #serve(folders: Folders, directory: string | null): Promise<void> {
    this.#server = await serveVm({
      vm: this.vm,
      vms: folders.vms,
      access: this.#access,
      state: () => this.#state,
      run: { runId: null, directory: directory === null ? null : path.resolve(directory) },
      egress: () => this.#network?.policy,
      onStop: () => this.#stopped.resolve(),
      setPaused: (paused) => this.#setPaused(paused),
    })
  }

  async #setPaused(paused: boolean): Promise<string | undefined> {
    if (this.#state === 'starting' || this.#state === 'stopping') return `the VM is ${this.#state}`
    if (paused) this.#link.setFrozen(true)
    await (paused ? pauseVm(this.vm) : unpauseVm(this.vm))
    if (!paused) this.#link.setFrozen(false)
    this.#state = paused ? 'paused' : 'running'
    return undefined
  }

  #openLink(cloned: boolean): AgentLink {
    const refused = { ok: false, error: { code: 'notFound', message: 'no task was given' } } as const
    return openAgentLink({
      cloned,
      probe: () => this.vm.qmp.probe(),
      rpc: this.vm.rpc,
      http: this.vm.http,
      onStream: (stream, headers) => {
        if (this.#access.handleStream(stream, headers) || this.#changes.handleStream(stream, headers)) return
        if (this.#network?.handleStream(stream, headers) !== true)
          stream.respond({ ':status': 404 }, { endStream: true })
      },
      handlers: {
        onEvent: () => undefined,
        onDelta: () => undefined,
        requestApproval: async () => refused,
        completeTask: async () => refused,
        onLog: (entry) => this.#log.write({ at: Date.now(), from: 'agent', ...entry }),
      },
    })
  }

  async #open(): Promise<void> {
    const timeout = { timeoutMs: requestTimeoutMs }
    const ended = Promise.withResolvers<never>()
    ended.promise.catch(() => undefined)
    void this.vm.exited.then(({ reason }) =>
      ended.reject(
        new CaissonError('vm_lost', `the VM ended before its agent answered (${reason}); see its console`),
      ),
    )
    const ask = async (): Promise<void> => {
      for (const answer of [
        await this.#link.ready(timeout),
        await this.vm.fresh.then(() => this.#link.request(workspaceOpen, {}, timeout)),
      ]) {
        if (!answer.ok)
          throw new CaissonError('agent_lost', `the VM's agent is not ready: ${answer.error.message}`)
      }
    }
    await Promise.race([ask(), ended.promise])
    this.#state = 'running'
  }
}

/** The directory as a disk, in a folder that is cleared when this process dies; QEMU has it open when that goes. */
async function makeDisk(
  { folders, signal }: StandaloneVmOptions,
  directory: string,
  disks: AsyncDisposableStack,
): Promise<{ file: string; openDisk: () => OpenDisk }> {
  const places = { ownFolders: [folders.home, folders.cache, folders.config] }
  const root = requireValue(checkDirectory(directory, places))
  const stopper = signal ?? new AbortController().signal
  const ruleChanges = await new KeptRules(folders).of(root)
  const scan = requireValue(await scanWorkspace({ directory: root, ruleChanges, signal: stopper, ...places }))
  const folder = await createVmFolder(folders.vms)
  disks.defer(() => folder.remove())
  const file = path.join(folder.path, 'workspace.erofs')
  const { manifest, fileNids } = requireValue(await buildDisk({ scan, file, signal: stopper }))
  const openDisk = () => {
    const fd = openSync(file, 'r')
    return { manifest, readBefore: readFromDisk(fd, fileNids), [Symbol.dispose]: () => closeSync(fd) }
  }
  return { file, openDisk }
}

type OpenDisk = Pick<CollectedSandbox, 'manifest' | 'readBefore'> & Disposable
