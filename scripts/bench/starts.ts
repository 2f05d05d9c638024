/**
 * Starts of VMs: cold, warm, and many warm ones at once. Warm starts are copies of the run template, compared with copies of a
 * saved echo guest. A start lasts from the spawn until the agent has answered and the guest is reseeded, whichever is later; an
 * echo guest is not reseeded.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { warmUp } from '../../host/runs/guest/warm-up.ts'
import { blankWorkspace, startFrom, type Template, takeTemplate } from '../../host/vm/template/template.ts'
import { TemplateStore } from '../../host/vm/template/template-store.ts'
import { resumeVm, type StartVmOptions, startVm, type Vm } from '../../host/vm/vm.ts'
import { prepareMachine } from '../../host/vm/vm-command.ts'
import { type Bench, type Figures, openLink, vmOptions, waitForAgent } from './bench.ts'
import { figureOf, repeats, reportProgress, round } from './figures.ts'
import { readCpuMs, readPss } from './processes.ts'
import { echoGuest, echoOnce } from './round-trips.ts'

const LEAST_STARTS = repeats(20)
/** First starts find neither files nor code in memory. */
const UNMEASURED = 2
/** The echo guest is as warm and idle as an agent when it is saved. */
const ECHOES = 20
const IDLE_MS = 1_000

/** A VM resumed from the template; the caller ends it. */
export async function resumeFrom(
  bench: Bench,
  template: Template,
  more: Pick<StartVmOptions, 'checkpointDisk'> = {},
): Promise<Vm> {
  const options = { ...vmOptions(bench), ...more, workspaceDisk: blankWorkspace(template) }
  return await resumeVm(options, startFrom(template))
}

/** The template of this benchmark's VMs, created if missing. */
export async function obtainTemplate(bench: Bench): Promise<Template> {
  const options = vmOptions(bench)
  const machine = await prepareMachine(options, false)
  const store = new TemplateStore(bench.folders.cache)
  const obtained = await store.obtain(options, machine, { warmUp, onProgress: reportProgress })
  if (!obtained.ok) throw new Error(obtained.reason)
  return obtained.template
}

/** Alternating, so that a noisy minute affects both. */
export async function measureWarm(bench: Bench): Promise<Figures> {
  const template = await obtainTemplate(bench)
  const directory = await mkdtemp(join(bench.work, 'echo-'))
  reportProgress('template of an echo guest')
  const echo = await takeTemplate({
    start: { ...vmOptions(bench), ...echoGuest },
    kind: template.record.kind,
    directory,
    warmUp: async ({ rpc }) => {
      for (let count = 0; count < ECHOES; count += 1) await echoOnce(rpc)
      await sleep(IDLE_MS)
    },
  })
  const warm: Sample[] = []
  const floor: Sample[] = []
  const count = Math.max(LEAST_STARTS, bench.starts)
  for (let index = -UNMEASURED; index < count; index += 1) {
    if (index >= 0) reportProgress(`warm start ${index + 1} of ${count}`)
    const samples = [await timeFloor(bench, echo), await timeWarm(bench, template)] as const
    if (index < 0) continue
    floor.push(samples[0])
    warm.push(samples[1])
  }
  await rm(directory, { recursive: true })
  return compare(warm, floor)
}

interface Sample {
  readonly ms: number
  readonly cpuMs: number
  /** Blocks of guest code that the emulator has translated; not a number under another accelerator. */
  readonly blocks: number
  readonly prepareMs: number
  readonly clockErrorMs: number
  /** The parts of the start. */
  readonly parts: Readonly<Record<string, number>>
}

function compare(warm: readonly Sample[], floor: readonly Sample[]): Figures {
  const figure = (samples: readonly Sample[], of: (sample: Sample) => number) => figureOf(samples.map(of))
  const warmStartMs = figure(warm, ({ ms }) => ms)
  const warmFloorMs = figure(floor, ({ ms }) => ms)
  const warmCpuMs = figure(warm, ({ cpuMs }) => cpuMs)
  const warmFloorCpuMs = figure(floor, ({ cpuMs }) => cpuMs)
  const parts = Object.keys(warm[0]?.parts ?? {}).map((name) => [
    name,
    figure(warm, (sample) => sample.parts[name] ?? Number.NaN),
  ])
  return {
    warmStartMs,
    warmFloorMs,
    warmToFloor: round(warmStartMs.p50 / warmFloorMs.p50),
    warmCpuMs,
    warmFloorCpuMs,
    warmToFloorCpu: round(warmCpuMs.p50 / warmFloorCpuMs.p50),
    ...(Number.isNaN(warm[0]?.blocks)
      ? {}
      : {
          warmBlocks: figure(warm, ({ blocks }) => blocks),
          warmFloorBlocks: figure(floor, ({ blocks }) => blocks),
        }),
    warmPrepareMs: figure(warm, ({ prepareMs }) => prepareMs),
    warmPartsMs: Object.fromEntries(parts) as Figures,
    clockErrorMs: figure(warm, ({ clockErrorMs }) => clockErrorMs),
  }
}

async function timeWarm(bench: Bench, template: Template): Promise<Sample> {
  const startedAt = performance.now()
  await using vm = await resumeFrom(bench, template)
  await using link = openLink(vm, { cloned: true })
  const runsAt = performance.now()
  const since = () => performance.now() - runsAt
  const [answerMs, freshMs] = await Promise.all([waitForAgent(link).then(since), vm.fresh.then(since)])
  const { spawnMs, qmpMs, loadMs = Number.NaN, prepareMs } = vm.timings
  const sample = await finish(vm, startedAt)
  const parts = { spawn: spawnMs, qmp: qmpMs, load: loadMs, answer: answerMs, fresh: freshMs }
  // Measured a second time with warm code, as a person's program would see it.
  await vm.root.refresh({ entropy: false, deadlineMs: 10_000 })
  const clockErrorMs = Math.abs(await vm.root.refresh({ entropy: false, deadlineMs: 10_000 }))
  return { ...sample, prepareMs, parts, clockErrorMs }
}

async function timeFloor(bench: Bench, template: Template): Promise<Sample> {
  const startedAt = performance.now()
  await using vm = await resumeFrom(bench, template)
  await echoOnce(vm.rpc)
  return await finish(vm, startedAt)
}

async function finish(vm: Vm, startedAt: number): Promise<Sample> {
  const { prepareMs } = vm.timings
  const ms = performance.now() - startedAt - prepareMs
  const cpuMs = await readCpuMs(vm.pid)
  return { ms, cpuMs, blocks: await readBlocks(vm), prepareMs, parts: {}, clockErrorMs: Number.NaN }
}

/** Nearly independent of other load: an emulated start spends its time on translation. */
async function readBlocks({ qmp, accelerator }: Vm): Promise<number> {
  if (accelerator !== 'tcg') return Number.NaN
  const text = await qmp.execute('human-monitor-command', { 'command-line': 'info jit' })
  return Number(/TB count\s+(\d+)/.exec(String(text))?.[1] ?? Number.NaN)
}

/** Cold starts, alternating with a bare Node in the same kernel and root. */
export async function measureCold(bench: Bench): Promise<Figures> {
  const cold: number[] = []
  const floor: number[] = []
  const pss: number[] = []
  for (let index = 0; index < bench.starts; index += 1) {
    reportProgress(`cold start ${index + 1} of ${bench.starts}`)
    floor.push(await timeColdFloor(bench))
    const startedAt = performance.now()
    await using vm = await startVm(vmOptions(bench))
    await using link = openLink(vm)
    await waitForAgent(link)
    cold.push(performance.now() - startedAt - vm.timings.prepareMs)
    pss.push((await readPss(vm.pid)).pssMiB)
  }
  const [coldStartMs, floorMs] = [figureOf(cold), figureOf(floor)]
  return {
    coldStartMs,
    floorMs,
    coldToFloor: round(coldStartMs.p50 / floorMs.p50),
    pssMiB: figureOf(pss),
  }
}

async function timeColdFloor(bench: Bench): Promise<number> {
  await using vm = await startVm({
    ...vmOptions(bench),
    guestOptions: { init: '/usr/lib/caisson/floor' },
    readyMarker: 'caisson: floor',
  })
  return vm.timings.totalMs - vm.timings.prepareMs
}

const VMS = repeats(16)
const ROUNDS = repeats(5)

/** Sixteen warm VMs in parallel: time until all have answered, and memory of each. */
export async function measureMany(bench: Bench): Promise<Figures> {
  const template = await obtainTemplate(bench)
  const times: number[] = []
  const pss: number[] = []
  const privates: number[] = []
  for (let round = 0; round < ROUNDS; round += 1) {
    reportProgress(`${VMS} warm VMs at once, ${round + 1} of ${ROUNDS}`)
    await using running = new AsyncDisposableStack()
    const startedAt = performance.now()
    const pids = await Promise.all(
      Array.from({ length: VMS }, async () => {
        const vm = running.use(await resumeFrom(bench, template))
        const link = running.use(openLink(vm, { cloned: true }))
        await Promise.all([waitForAgent(link), vm.fresh])
        return vm.pid
      }),
    )
    times.push(performance.now() - startedAt)
    for (const pid of pids) {
      const memory = await readPss(pid)
      pss.push(memory.pssMiB)
      privates.push(memory.privateMiB)
    }
  }
  return {
    parallel16Ms: figureOf(times),
    pssPerWarmVmMiB: figureOf(pss),
    privatePerWarmVmMiB: figureOf(privates),
  }
}
