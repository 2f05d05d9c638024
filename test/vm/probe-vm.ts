// A VM whose agent is the probe of the code tools, and the host's side of its lines: for tests of the guest itself.

import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { ensureAgentDisk } from '../../host/image/agent-disk.ts'
import { ensureRootImage } from '../../host/image/root-image.ts'
import { findSources } from '../../host/image/sources.ts'
import { makeTestFolders } from '../../host/test/support/vm.ts'
import { startVm, type Vm } from '../../host/vm/vm.ts'
import { buildDisk } from '../../host/workspace/scan/disk.ts'
import { scanWorkspace } from '../../host/workspace/scan/scan.ts'
import type { ProbeRequest } from './agents/code-probe.ts'

const MIB = 1024 * 1024

export interface ProbeVm extends AsyncDisposable {
  readonly vm: Vm
  /** Value of the next agent's first line, which it sends once it has mounted the workspace. */
  nextStart(): Promise<unknown>
  /** Asks the probe; the caller knows the reply's shape. Many may be asked at once. */
  ask<T>(request: ProbeRequest): Promise<T>
}

/** Boots it with a scratch disk of `diskBytes` and a copy of `workspace`, or an empty one; ready once that is mounted. */
export async function startProbeVm(diskBytes: number, workspace?: string): Promise<ProbeVm> {
  const home = makeTestFolders()
  const cacheDir = mkdtempSync(join(tmpdir(), 'caisson-probe-'))
  const { recipe } = findSources()
  const root = await ensureRootImage({ cacheDir: home.folders.cache, recipe, arch: 'amd64' })
  const entry = resolve(import.meta.dirname, 'agents/code-probe.ts')
  const agent = await ensureAgentDisk({ cacheDir, agent: { entry, watched: [] } })
  const vm = await startVm({
    image: {
      kernel: join(root.directory, 'vmlinuz'),
      initramfs: join(root.directory, 'initramfs'),
      root: join(root.directory, 'root.erofs'),
      agentDisk: agent.disk,
    },
    folders: home.folders,
    memoryBytes: 768 * MIB,
    diskBytes,
    ...(workspace === undefined ? {} : { workspaceDisk: await makeDisk(workspace, cacheDir) }),
  })
  const waiting = new Map<number, (value: unknown) => void>()
  let lastId = 0
  const lines = createInterface({ input: vm.rpc })
  lines.on('line', (line) => {
    const { id, value } = JSON.parse(line) as { id: number; value: unknown }
    waiting.get(id)?.(value)
    waiting.delete(id)
  })
  const ended = once(lines, 'close').then(() => {
    throw new Error(`the VM ended: ${vm.console.text()}`)
  })
  ended.catch(() => undefined)
  const reply = async (id: number): Promise<unknown> =>
    Promise.race([new Promise((settle) => waiting.set(id, settle)), ended])
  const started = await reply(0)
  if (JSON.stringify(started) !== '{"ok":true}')
    throw new Error(`no workspace: ${JSON.stringify(started)} ${vm.console.text()}`)
  return {
    vm,
    nextStart: () => reply(0),
    ask: async <T>(request: ProbeRequest) => {
      const id = ++lastId
      const answer = reply(id)
      vm.rpc.write(`${JSON.stringify({ ...request, id })}\n`)
      return (await answer) as T
    },
    [Symbol.asyncDispose]: async () => {
      await vm.stop()
      home[Symbol.dispose]()
      rmSync(cacheDir, { recursive: true, force: true })
    },
  }
}

async function makeDisk(workspace: string, folder: string): Promise<string> {
  const scan = await scanWorkspace({ directory: workspace, ownFolders: [] })
  if (!scan.ok) throw new Error(scan.error.message)
  const file = join(folder, 'workspace.erofs')
  const disk = await buildDisk({ scan: scan.value, file })
  if (!disk.ok) throw new Error(disk.error.message)
  return file
}
