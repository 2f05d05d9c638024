/**
 * Figures of the VM, all from one run on one machine, so that ratios mean something where times do not:
 * cold start against a bare node in the same kernel and root, JSON-RPC ping against a raw echo on the same kind of port,
 * the workspace's way in and out, and memory. `npm run bench:vm -- --json [--starts N]`.
 */

import { once } from 'node:events'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { agentPing, clockSet, workspaceCollect, workspaceOpen } from '#specs/protocol/methods.ts'
import { RunLimits } from '#specs/protocol/task.ts'
import { createGateway, type Gateway } from '../../host/gateway/gateway.ts'
import { offlineModel, offlineProvider } from '../../host/gateway/providers.ts'
import { ensureImage, type Image } from '../../host/image/image.ts'
import { openAgentLink } from '../../host/rpc/agent-link.ts'
import { type Folders, prepareFolders, resolveFolders } from '../../host/state/folders.ts'
import { startVm, type Vm } from '../../host/vm/vm.ts'
import { buildDisk, type Manifest, receiveChanges, scanWorkspace } from '../../host/workspace/index.ts'
import { type Figure, figureOf, printFigures, round, tell } from './figures.ts'

const starts = Math.max(1, Number(process.argv[process.argv.indexOf('--starts') + 1]) || 10)
const pings = 2_000
const warmUps = 1_000

const runId = 'run-00000000000000000000'

const home = await mkdtemp(path.join(tmpdir(), 'caisson-bench-'))

type StreamHandler = Parameters<typeof openAgentLink>[0]['onStream']

async function measure(image: Image, folders: Folders): Promise<Record<string, unknown>> {
  const { cold, floor, pss } = await measureStarts(image, folders)
  const rpc = await measurePing(image, folders)
  const raw = await measureEcho(image, folders)
  const workspace = await measureWorkspace(image, folders)
  return {
    coldStartMs: cold,
    floorMs: floor,
    coldToFloor: round(cold.p50 / floor.p50),
    rpcRoundTripMs: rpc,
    rawRoundTripMs: raw,
    rpcToRaw: round(rpc.p50 / raw.p50),
    ...workspace,
    pssMiB: pss,
  }
}

/** Alternately, so that a noisy minute strikes both. */
async function measureStarts(
  image: Image,
  folders: Folders,
): Promise<{ cold: Figure; floor: Figure; pss: Figure }> {
  const [cold, floor, pss]: number[][] = [[], [], []]
  for (let index = 0; index < starts; index += 1) {
    tell(`start ${index + 1} of ${starts}`)
    floor?.push(await timeFloor(image, folders))
    const startedAt = performance.now()
    await using vm = await startVm({ image, folders })
    await using link = openLink(vm)
    const ready = await link.ready({ timeoutMs: 60_000 })
    if (!ready.ok) throw new Error(ready.error.message)
    cold?.push(performance.now() - startedAt - vm.timings.prepareMs)
    pss?.push(await pssOf(vm.pid))
  }
  return { cold: figureOf(cold ?? []), floor: figureOf(floor ?? []), pss: figureOf(pss ?? []) }
}

async function timeFloor(image: Image, folders: Folders): Promise<number> {
  await using vm = await startVm({
    image,
    folders,
    guestOptions: { init: '/usr/lib/caisson/floor' },
    readyMarker: 'caisson: floor',
  })
  return vm.timings.totalMs - vm.timings.prepareMs
}

function openLink(
  vm: Vm,
  onStream: StreamHandler = () => undefined,
  onCompleted: () => void = () => undefined,
) {
  return openAgentLink({
    rpc: vm.rpc,
    http: vm.http,
    onStream,
    handlers: {
      onEvent: () => undefined,
      onDelta: () => undefined,
      requestApproval: async () => ({ ok: true, value: { decision: 'deny' } }),
      completeTask: async () => {
        onCompleted()
        return { ok: true, value: {} }
      },
      onLog: () => undefined,
    },
  })
}

async function measurePing(image: Image, folders: Folders): Promise<Figure> {
  tell('JSON-RPC ping')
  await using vm = await startVm({ image, folders })
  await using link = openLink(vm)
  await link.ready({ timeoutMs: 60_000 })
  return await timeRoundTrips(async (count) => {
    const answer = await link.request(agentPing, { count })
    if (!answer.ok) throw new Error(answer.error.message)
  })
}

async function measureEcho(image: Image, folders: Folders): Promise<Figure> {
  tell('raw echo')
  await using vm = await startVm({
    image,
    folders,
    guestOptions: { init: '/usr/lib/caisson/echo' },
    readyMarker: 'caisson: echo ready',
  })
  // As long as the frame of a ping, so that only the work differs.
  const message = Buffer.alloc(80, 'x')
  return await timeRoundTrips(async () => {
    let left = message.length
    vm.rpc.write(message)
    while (left > 0) {
      const [chunk] = (await once(vm.rpc, 'data')) as [Buffer]
      left -= chunk.length
    }
  })
}

async function timeRoundTrips(once: (count: number) => Promise<void>): Promise<Figure> {
  for (let count = 0; count < warmUps; count += 1) await once(count)
  const samples: number[] = []
  for (let count = 0; count < pings; count += 1) {
    const startedAt = performance.now()
    await once(count)
    samples.push(performance.now() - startedAt)
  }
  return figureOf(samples)
}

/** 10,000 files of 1 kB and one of 128 MB: in until they can be read in the guest, all changed, and out. */
async function measureWorkspace(image: Image, folders: Folders): Promise<Record<string, Figure>> {
  const directory = path.join(home, 'workspace')
  await makeFiles(directory)
  const [into, out]: number[][] = [[], []]
  for (let index = 0; index < 3; index += 1) {
    tell(`workspace ${index + 1} of 3`)
    const run = path.join(home, `run-${index}`)
    await mkdir(run)
    const disk = path.join(run, 'workspace.erofs')
    const scannedAt = performance.now()
    const { manifest } = await buildWorkspace(directory, disk)
    const builtMs = performance.now() - scannedAt
    const { openMs, outMs } = await throughVm(image, folders, disk, manifest, run)
    into?.push(builtMs + openMs)
    out?.push(outMs)
    await rm(run, { recursive: true })
  }
  return { workspaceInMs: figureOf(into ?? []), workspaceOutMs: figureOf(out ?? []) }
}

async function buildWorkspace(directory: string, file: string): Promise<{ manifest: Manifest }> {
  const scan = await scanWorkspace({ directory, ownFolders: [] })
  if (!scan.ok) throw new Error(scan.error.message)
  const disk = await buildDisk({ scan: scan.value, file })
  if (!disk.ok) throw new Error(disk.error.message)
  return disk.value
}

async function throughVm(
  image: Image,
  folders: Folders,
  workspaceDisk: string,
  manifest: Manifest,
  runDirectory: string,
) {
  const received = Promise.withResolvers<number>()
  const worked = Promise.withResolvers<void>()
  await using vm = await startVm({ image, folders, workspaceDisk })
  await using gateway = openGateway()
  const onStream: StreamHandler = (stream, headers) => {
    if (headers[':path'] !== `/changes/${runId}`) return gateway.handleStream(stream, headers)
    received.resolve(
      receiveChanges({ source: stream, manifest, runDirectory }).then((result) => {
        if (!result.ok) throw new Error(result.error.message)
        stream.respond({ ':status': 204 }, { endStream: true })
        return result.value.entries.size
      }),
    )
  }
  await using link = openLink(vm, onStream, () => worked.resolve())
  await link.ready({ timeoutMs: 60_000 })
  await link.request(clockSet, { epochMs: Date.now() })
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
  if ((await received.promise) !== 10_001)
    throw new Error(`${await received.promise} changes came home instead of 10,001`)
  return { openMs, outMs: performance.now() - collectedAt }
}

function openGateway(): Gateway {
  const silent = { info: () => undefined, warn: () => undefined }
  return createGateway({
    provider: offlineProvider(false),
    runId,
    limits: { maxTokens: 1_000_000 },
    onExchange: () => undefined,
    onDenied: () => undefined,
    logger: silent,
  })
}

/** What the guest runs: every file gets other content of the same size. */
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
  for (let folder = 0; folder < 100; folder += 1) {
    const place = path.join(directory, `folder-${folder}`)
    await mkdir(place, { recursive: true })
    for (let file = 0; file < 100; file += 1)
      await writeFile(path.join(place, `file-${file}.txt`), 'x'.repeat(1_000))
  }
  await writeFile(path.join(directory, 'large.bin'), Buffer.alloc(128_000_000, 'x'))
  await writeFile(path.join(directory, 'change.py'), changeScript)
}

/** Proportional set size of QEMU, in MiB. */
async function pssOf(pid: number): Promise<number> {
  const rollup = await readFile(`/proc/${pid}/smaps_rollup`, 'utf8')
  return Number(/^Pss:\s+(\d+)/m.exec(rollup)?.[1] ?? Number.NaN) / 1024
}

try {
  const folders = resolveFolders({ ...process.env, CAISSON_HOME: home })
  await prepareFolders(folders)
  const image = await ensureImage({ cacheDir: folders.cache, onProgress: tell })
  printFigures(await measure(image, folders))
} finally {
  await rm(home, { recursive: true, force: true })
}
