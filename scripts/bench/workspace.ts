/**
 * Workspace transfer: 10,000 files of 1 kB and one of 128 MB, until the guest can read them; all changed; and back.
 * With `--quick` a tenth of it.
 */

import { mkdir, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { workspaceCollect, workspaceOpen } from '#specs/protocol/methods.ts'
import { RunLimits } from '#specs/protocol/task.ts'
import { createGateway, type Gateway } from '../../host/gateway/gateway.ts'
import { offlineModel, offlineProvider } from '../../host/providers/providers.ts'
import { startVm } from '../../host/vm/vm.ts'
import { buildDisk, type Manifest, receiveChanges, scanWorkspace } from '../../host/workspace/index.ts'
import { type Bench, type Figures, type LinkOptions, openLink, vmOptions, waitForAgent } from './bench.ts'
import { figureOf, repeats, reportProgress } from './figures.ts'

const runId = 'run-00000000000000000000'
const rounds = repeats(3)
/** Of 100 files each. */
const folders = repeats(2) === 1 ? 10 : 100
const largeBytes = repeats(2) === 1 ? 8_000_000 : 128_000_000

export async function measureWorkspace(bench: Bench): Promise<Figures> {
  const directory = path.join(bench.work, 'workspace')
  await makeFiles(directory)
  const into: number[] = []
  const out: number[] = []
  for (let index = 0; index < rounds; index += 1) {
    reportProgress(`workspace ${index + 1} of ${rounds}`)
    const run = path.join(bench.work, `run-${index}`)
    await mkdir(run)
    const disk = path.join(run, 'workspace.erofs')
    const scannedAt = performance.now()
    const { manifest } = await buildWorkspace(directory, disk)
    const builtMs = performance.now() - scannedAt
    const { openMs, outMs } = await throughVm(bench, disk, manifest, run)
    into.push(builtMs + openMs)
    out.push(outMs)
    await rm(run, { recursive: true })
  }
  await rm(directory, { recursive: true })
  return { workspaceInMs: figureOf(into), workspaceOutMs: figureOf(out) }
}

async function buildWorkspace(directory: string, file: string): Promise<{ manifest: Manifest }> {
  const scan = await scanWorkspace({ directory, ownFolders: [] })
  if (!scan.ok) throw new Error(scan.error.message)
  const disk = await buildDisk({ scan: scan.value, file })
  if (!disk.ok) throw new Error(disk.error.message)
  return disk.value
}

async function throughVm(bench: Bench, workspaceDisk: string, manifest: Manifest, runDirectory: string) {
  const received = Promise.withResolvers<number>()
  const worked = Promise.withResolvers<void>()
  await using vm = await startVm({ ...vmOptions(bench), workspaceDisk })
  await using gateway = openGateway()
  const onStream: LinkOptions['onStream'] = (stream, headers) => {
    if (headers[':path'] !== `/changes/${runId}`) return gateway.handleStream(stream, headers)
    received.resolve(
      receiveChanges({ source: stream, manifest, runDirectory }).then((result) => {
        if (!result.ok) throw new Error(result.error.message)
        stream.respond({ ':status': 204 }, { endStream: true })
        return result.value.entries.size
      }),
    )
  }
  await using link = openLink(vm, { onStream, onCompleted: () => worked.resolve() })
  await waitForAgent(link)
  const openedAt = performance.now()
  await link.request(workspaceOpen, {}, { timeoutMs: 60_000 })
  const openMs = performance.now() - openedAt
  await link.submitTask({
    runId,
    prompt: 'Run the command `python3 change.py`',
    model: offlineModel,
    askTools: [],
    limits: RunLimits.parse({}),
  })
  await worked.promise
  const collectedAt = performance.now()
  const told = await link.request(workspaceCollect, { runId }, { timeoutMs: 300_000 })
  if (!told.ok) throw new Error(told.error.message)
  const [changed, expected] = [await received.promise, folders * 100 + 1]
  if (changed !== expected) throw new Error(`${changed} changes arrived instead of ${expected}`)
  return { openMs, outMs: performance.now() - collectedAt }
}

function openGateway(): Gateway {
  const silent = { info: () => undefined, warn: () => undefined }
  return createGateway({
    provider: offlineProvider(false),
    runId,
    limits: { maxTokens: 1_000_000 },
    onModelEvent: () => undefined,
    onDenied: () => undefined,
    logger: silent,
  })
}

/** Runs in the guest: every file gets new content of the same size. */
const changeScript = `import os
for folder, _, names in os.walk('.'):
    for name in names:
        path = os.path.join(folder, name)
        if name == 'change.py': continue
        size = os.path.getsize(path)
        with open(path, 'r+b') as file:
            left = size
            while left > 0:
                left -= file.write(b'y' * min(left, 1 << 20))
`

async function makeFiles(directory: string): Promise<void> {
  for (let folder = 0; folder < folders; folder += 1)
    await makeFolder(path.join(directory, `folder-${folder}`))
  await writeFile(path.join(directory, 'large.bin'), Buffer.alloc(largeBytes, 'x'))
  await writeFile(path.join(directory, 'change.py'), changeScript)
}

/** A folder of 100 files of 1 kB. */
export async function makeFolder(directory: string): Promise<void> {
  await mkdir(directory, { recursive: true })
  for (let file = 0; file < 100; file += 1)
    await writeFile(path.join(directory, `file-${file}.txt`), 'x'.repeat(1_000))
}
