/**
 * Checkpoints of a warm VM's disk: with nothing new, and after half a megabyte in nine files. Then a warm VM over a
 * checkpoint until its agent has answered and the workspace is mounted, beside one with an empty disk.
 */
import path from 'node:path'
import { buffer } from 'node:stream/consumers'
import { workspaceOpen } from '#specs/protocol/methods.ts'
import { GuestAccess } from '../../host/control/guest-access.ts'
import { Shell } from '../../host/control/shell.ts'
import { CheckpointDisk } from '../../host/vm/checkpoints/checkpoint-disk.ts'
import type { CheckpointTimes } from '../../host/vm/checkpoints/checkpoints.ts'
import type { Vm } from '../../host/vm/vm.ts'
import { AGENT_DEADLINE_MS, type Bench, type Figures, openLink, waitForAgent } from './bench.ts'
import { figureOf, repeats, reportProgress, round } from './figures.ts'
import { obtainTemplate, resumeFrom } from './starts.ts'

const checkpointCount = repeats(12)
const openCount = repeats(5)
const write = 'for n in 1 2 3 4 5 6 7 8 9; do head -c 58000 /dev/urandom >"f$n"; done'

export async function measureCheckpoints(bench: Bench): Promise<Figures> {
  const directory = path.join(bench.work, 'disk')
  const idle: CheckpointTimes[] = []
  const busy: CheckpointTimes[] = []
  {
    await using opened = await open(bench, await CheckpointDisk.create(directory))
    for (let index = 0; index < checkpointCount; index += 1) {
      reportProgress(`checkpoints ${2 * index + 1} of ${2 * checkpointCount}`)
      await opened.run(write)
      busy.push(await opened.checkpoint(`busy-${index}`))
      idle.push(await opened.checkpoint(`idle-${index}`))
      await opened.dropAllButLast()
    }
  }
  const openMs: number[] = []
  const plainMs: number[] = []
  for (let index = 0; index < openCount; index += 1) {
    reportProgress(`starts ${index + 1} of ${openCount}`)
    for (const [samples, disk] of [
      [plainMs, undefined],
      [openMs, await CheckpointDisk.open(directory)],
    ] as const) {
      const startedAt = performance.now()
      await using _ = await open(bench, disk)
      samples.push(performance.now() - startedAt)
    }
  }
  const [over, plain] = [figureOf(openMs), figureOf(plainMs)]
  return {
    checkpointMs: figureOf(busy.map(sum)),
    checkpointFlushMs: figureOf(busy.map(({ flushMs }) => flushMs)),
    checkpointLayerMs: figureOf(busy.map(({ layerMs }) => layerMs)),
    idleCheckpointMs: figureOf(idle.map(sum)),
    openCheckpointMs: over,
    openEmptyMs: plain,
    checkpointToEmpty: round(over.p50 / plain.p50),
  }
}

function sum({ flushMs, layerMs, recordMs }: CheckpointTimes): number {
  return flushMs + layerMs + recordMs
}

interface Opened extends AsyncDisposable {
  run(script: string): Promise<void>
  checkpoint(id: string): Promise<CheckpointTimes>
  dropAllButLast(): Promise<void>
}

/** A warm VM whose agent has answered, with its workspace. */
async function open(bench: Bench, checkpointDisk: CheckpointDisk | undefined): Promise<Opened> {
  const more = checkpointDisk === undefined ? {} : { checkpointDisk }
  const vm: Vm = await resumeFrom(bench, await obtainTemplate(bench), more)
  const access: GuestAccess = new GuestAccess({ link: () => link })
  const link = openLink(vm, { cloned: true, onStream: (...stream) => void access.handleStream(...stream) })
  await Promise.all([waitForAgent(link), vm.fresh])
  const mounted = await link.request(workspaceOpen, {}, { timeoutMs: AGENT_DEADLINE_MS })
  if (!mounted.ok) throw new Error(mounted.error.message)
  return {
    run: async (script) => {
      const opened = await access.openShell({ argv: ['bash', '-c', script], terminal: null })
      if (!opened.ok) throw new Error(opened.error.message)
      const shell = new Shell(opened.value)
      shell.stdin.end()
      const [errors, end] = await Promise.all([buffer(shell.stderr), shell.ended, buffer(shell.stdout)])
      if (end.kind !== 'exited' || end.exitCode !== 0) throw new Error(`writing: ${errors.toString()}`)
    },
    checkpoint: async (id) => {
      if (vm.checkpoints === undefined) throw new Error('the VM has no checkpoints')
      return await vm.checkpoints.make(id)
    },
    dropAllButLast: async () => await vm.checkpoints?.drop(new Set(vm.checkpoints.list)),
    [Symbol.asyncDispose]: async () => {
      link.close()
      await vm.stop()
    },
  }
}
