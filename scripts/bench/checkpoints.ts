/**
 * Checkpoints of a warm VM's disk: with nothing new, after one file of 2 kB, and after half a megabyte in nine files. Then
 * a warm VM over a checkpoint until its agent has answered and the workspace is mounted, beside one with an empty disk. The
 * longest time that a program of a VM stands still while its disk gets a checkpoint and is forked, beside that of a VM left
 * alone.
 */
import path from 'node:path'
import { buffer } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
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
const writeOne = 'head -c 2000 /dev/urandom >f1'

/** Writes all the time for two seconds, and says for how long at most it stood still. */
const tick = `node -e '
const fs = require("node:fs"), fd = fs.openSync("ticks", "a")
let last = performance.now(), longest = 0
for (const end = last + 2000; last < end; ) {
  fs.writeSync(fd, ".")
  const now = performance.now()
  longest = Math.max(longest, now - last)
  last = now
}
console.log(longest)'`
const forkCount = repeats(8)

export async function measureCheckpoints(bench: Bench): Promise<Figures> {
  const directory = path.join(bench.work, 'disk')
  const idle: CheckpointTimes[] = []
  const small: CheckpointTimes[] = []
  const busy: CheckpointTimes[] = []
  {
    await using opened = await open(bench, await CheckpointDisk.create(directory))
    for (let index = 0; index < checkpointCount; index += 1) {
      reportProgress(`checkpoints ${3 * index + 1} of ${3 * checkpointCount}`)
      await opened.run(write)
      busy.push(await opened.checkpoint(`busy-${index}`))
      idle.push(await opened.checkpoint(`idle-${index}`))
      await opened.run(writeOne)
      small.push(await opened.checkpoint(`small-${index}`))
      await opened.dropAllButLast()
    }
  }
  const pauses = await measureForks(bench)
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
    smallCheckpointMs: figureOf(small.map(sum)),
    idleCheckpointMs: figureOf(idle.map(sum)),
    openCheckpointMs: over,
    openEmptyMs: plain,
    checkpointToEmpty: round(over.p50 / plain.p50),
    ...pauses,
  }
}

/** From a checkpoint that is there, and with one that is made for the fork, as `--at now` has it. */
async function measureForks(bench: Bench): Promise<Figures> {
  const samples: Record<'floor' | 'kept' | 'fresh' | 'fork', number[]> = {
    floor: [],
    kept: [],
    fresh: [],
    fork: [],
  }
  await using opened = await open(bench, await CheckpointDisk.create(path.join(bench.work, 'forked')))
  for (let index = 0; index < forkCount; index += 1) {
    reportProgress(`forks ${index + 1} of ${forkCount}`)
    const id = `fork-${index}`
    const during = async (work: () => Promise<unknown>): Promise<number> => {
      const ticking = opened.run(tick)
      await sleep(1_000)
      await work()
      return Number(await ticking)
    }
    samples.floor.push(await during(async () => undefined))
    samples.fresh.push(
      await during(async () => {
        await opened.checkpoint(id)
        await opened.fork(path.join(bench.work, `${id}-now`), id)
      }),
    )
    const pause = await during(async () => {
      const startedAt = performance.now()
      await opened.fork(path.join(bench.work, id), id)
      samples.fork.push(performance.now() - startedAt)
    })
    samples.kept.push(pause)
  }
  return {
    forkMs: figureOf(samples.fork),
    forkPauseMs: figureOf(samples.kept),
    forkNowPauseMs: figureOf(samples.fresh),
    pauseFloorMs: figureOf(samples.floor),
  }
}

function sum({ flushMs, layerMs, recordMs }: CheckpointTimes): number {
  return flushMs + layerMs + recordMs
}

interface Opened extends AsyncDisposable {
  /** Resolves with what it printed. */
  run(script: string): Promise<string>
  checkpoint(id: string): Promise<CheckpointTimes>
  fork(to: string, id: string): Promise<void>
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
      const [errors, end, printed] = await Promise.all([
        buffer(shell.stderr),
        shell.ended,
        buffer(shell.stdout),
      ])
      if (end.kind !== 'exited' || end.exitCode !== 0) throw new Error(`writing: ${errors.toString()}`)
      return printed.toString()
    },
    checkpoint: async (id) => {
      if (vm.checkpoints === undefined) throw new Error('the VM has no checkpoints')
      return await vm.checkpoints.make(id)
    },
    fork: async (to, id) => void (await vm.checkpoints?.fork(to, id)),
    dropAllButLast: async () => await vm.checkpoints?.drop(new Set(vm.checkpoints.list)),
    [Symbol.asyncDispose]: async () => {
      link.close()
      await vm.stop()
    },
  }
}
