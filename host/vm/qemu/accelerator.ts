// Selects kvm, hvf or software emulation (tcg) by a trial boot: /dev/kvm may exist, open and create VMs and still abort
// at start or hang the guest in its decompressor. The result is cached per machine.

import { createHash, randomBytes } from 'node:crypto'
import { access, constants, mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { arch, cpus, release } from 'node:os'
import { dirname, join } from 'node:path'
import { z } from 'zod'
import { findProgram } from '../../processes/programs.ts'
import { VmError } from '../vm-error.ts'
import { type ConfineMode, type ConfinementFacts, chooseLauncher, probeConfinement } from './confinement.ts'
import type { Accelerator } from './qemu-args.ts'
import { type QemuExit, spawnQemu } from './qemu-process.ts'
import { readQemuVersion, stampFile } from './qemu-programs.ts'

/** A working accelerator needs about a second; a machine that needs longer than this is faster with tcg. */
const TRIAL_DEADLINE_MS = 15_000
const TRIAL_MEMORY_BYTES = 256 * 1024 * 1024
/** Printed by the kernel after its own startup when it finds no root, as expected here. */
const TRIAL_SUCCESS = 'VFS: Unable to mount root fs'

interface Trial {
  readonly accelerator: Accelerator
  readonly works: boolean
  /** Reason for the failure, in the host's words; never guest text. */
  readonly seen: string
}

/** Facts about this machine, cached until QEMU, bubblewrap, the kernel or the CPU change. */
export interface Machine {
  readonly qemu: string
  readonly qemuVersion: string
  /** Whether QEMU has its seccomp sandbox. */
  readonly seccomp: boolean
  readonly accelerator: Accelerator
  /** The trials behind the result; software emulation is the fallback and has none. */
  readonly trials: readonly Trial[]
  readonly confinement: ConfinementFacts
}

const launcherSchema = z.union([
  z.strictObject({
    kind: z.literal('bubblewrap'),
    bwrap: z.string(),
    drop: z.strictObject({ uid: z.number(), gid: z.number(), setpriv: z.string() }).exactOptional(),
  }),
  z.strictObject({ kind: z.literal('setpriv'), setpriv: z.string() }),
  z.strictObject({ kind: z.literal('bare') }),
])
const acceleratorSchema = z.enum(['kvm', 'hvf', 'tcg'])
const machineSchema = z.strictObject({
  qemu: z.string(),
  qemuVersion: z.string(),
  seccomp: z.boolean(),
  accelerator: acceleratorSchema,
  trials: z.array(z.strictObject({ accelerator: acceleratorSchema, works: z.boolean(), seen: z.string() })),
  confinement: z.strictObject({
    launchers: z.array(launcherSchema).min(1),
    reason: z.string().exactOptional(),
  }),
})

interface ProbeOptions {
  readonly qemu: string
  /** Linux kernel for the trial: the image's. Absent: no trial, so the result is tcg. */
  readonly kernel?: string
  readonly cacheDirectory: string
  readonly confine: ConfineMode
  /** Repeat the trial even if the result is cached. */
  readonly fresh?: boolean
  readonly signal?: AbortSignal
}

/**
 * What this machine supports: cached if nothing changed, else by trial (milliseconds without an accelerator, at most 15
 * s with a broken one).
 * @throws VmError `no_qemu` when QEMU does not run
 */
export async function probeMachine(options: ProbeOptions): Promise<Machine> {
  const file = join(options.cacheDirectory, 'machines', `${await machineKey(options.qemu)}.json`)
  const known = options.fresh ? undefined : await readMachine(file)
  if (known) return known
  const qemuVersion = await readQemuVersion(options.qemu)
  if (qemuVersion === undefined) throw qemuDoesNotRun(options.qemu)
  const confinement = await probeConfinement(options.qemu)
  const trials: Trial[] = []
  const { kernel } = options
  for (const accelerator of kernel === undefined ? [] : await findCandidates()) {
    const trial = await tryAccelerator(accelerator, confinement, { ...options, kernel: kernel ?? '' })
    trials.push(trial)
    if (trial.works) break
  }
  const accelerator = trials.find((trial) => trial.works)?.accelerator ?? 'tcg'
  const seccomp = process.platform === 'linux'
  const machine: Machine = { qemu: options.qemu, qemuVersion, seccomp, accelerator, trials, confinement }
  if (kernel !== undefined) await writeMachine(file, machine)
  return machine
}

/**
 * The same for an accelerator that somebody asked for: a remembered failure is tried again first.
 * @throws VmError `accelerator_unavailable` when it does not work here
 */
export async function probeRequested(
  requested: Accelerator | 'auto',
  options: ProbeOptions,
): Promise<Machine> {
  const hasFailed = ({ trials }: Machine): boolean =>
    trials.some(({ accelerator, works }) => accelerator === requested && !works)
  if (requested !== 'auto' && requested !== 'tcg' && !(await findCandidates()).includes(requested))
    throw acceleratorUnavailable(requested, [])
  const machine = await probeMachine(options)
  if (!hasFailed(machine)) return machine
  const again = options.fresh === true ? machine : await probeMachine({ ...options, fresh: true })
  if (hasFailed(again)) throw acceleratorUnavailable(requested, again.trials)
  return again
}

function acceleratorUnavailable(requested: string, trials: readonly Trial[]): VmError {
  return new VmError({
    kind: 'accelerator_unavailable',
    phase: 'prepare',
    expected: `the requested accelerator ${requested} (option vm.accelerator: ${requested})`,
    seen: describeTrials(trials) || noAccelerator,
    remedy: `${acceleratorRemedy()} Without acceleration: option vm.accelerator: tcg.`,
  })
}

/** What each trial showed, for people; empty without any. */
export function describeTrials(trials: readonly Trial[]): string {
  return trials.map(({ accelerator, seen }) => `${accelerator} was tried: ${seen}`).join('; ')
}

export const noAccelerator = 'no accelerator available to this user'

export function acceleratorRemedy(): string {
  return process.platform === 'linux'
    ? 'For KVM: turn virtualization on in the firmware, and let this user open /dev/kvm (group kvm). In a cloud VM it may not be possible.'
    : 'Nothing to do: this machine cannot accelerate this guest.'
}

/** Available accelerators, best first, without tcg. */
export async function findCandidates(): Promise<Accelerator[]> {
  // The guest is x86-64: other host architectures must emulate it.
  if (arch() !== 'x64') return []
  if (process.platform === 'darwin') return ['hvf']
  if (process.platform !== 'linux') return []
  try {
    await access('/dev/kvm', constants.R_OK | constants.W_OK)
    return ['kvm']
  } catch {
    return []
  }
}

/** Boots the bare kernel until it panics for lack of a root; anything else within the deadline means no. */
export async function tryAccelerator(
  accelerator: Accelerator,
  confinement: ConfinementFacts,
  options: Pick<ProbeOptions, 'qemu' | 'confine' | 'signal'> & {
    readonly kernel: string
    readonly deadlineMs?: number
  },
): Promise<Trial> {
  const seccomp = process.platform === 'linux'
  const launcher = await chooseLauncher(confinement, {
    mode: options.confine,
    seccomp,
    files: [options.kernel],
    devices: accelerator === 'kvm' ? ['/dev/kvm'] : [],
  })
  const deadlineMs = options.deadlineMs ?? TRIAL_DEADLINE_MS
  const qemu = spawnQemu({
    name: `caisson-trial-${randomBytes(4).toString('hex')}`,
    qemu: options.qemu,
    launcher,
    seccomp,
    accelerator,
    cpus: 2,
    memoryBytes: TRIAL_MEMORY_BYTES,
    boot: { kind: 'kernel', kernel: options.kernel, cmdline: 'console=ttyS0 panic=-1' },
    drives: [],
    ports: [],
  })
  const { promise: booted, resolve } = Promise.withResolvers<true>()
  qemu.console.onLine((line) => {
    if (line.includes(TRIAL_SUCCESS)) resolve(true)
  })
  const timeout = AbortSignal.timeout(deadlineMs)
  const ended = AbortSignal.any(options.signal ? [timeout, options.signal] : [timeout])
  const aborted = new Promise<undefined>((done) => {
    if (ended.aborted) done(undefined)
    ended.addEventListener('abort', () => done(undefined), { once: true })
  })
  try {
    const outcome = await Promise.race([booted, qemu.exited, aborted])
    options.signal?.throwIfAborted()
    if (outcome === true) return { accelerator, works: true, seen: 'the kernel booted' }
    return { accelerator, works: false, seen: describeFailure(outcome, deadlineMs, qemu.stderrTail()) }
  } finally {
    qemu.kill()
    await qemu.exited
    qemu.destroyStreams()
  }
}

function describeFailure(exit: QemuExit | undefined, deadlineMs: number, stderr: string): string {
  if (exit === undefined) return `the kernel did not boot within ${deadlineMs / 1000} s`
  if (exit.spawnError) return `QEMU could not be started: ${exit.spawnError.message}`
  // The first line has the cause. Printable ASCII only: it may be shown anywhere.
  const line = (stderr.split('\n')[0] ?? '').replace(/[^ -~]/g, '?').slice(0, 200)
  return `QEMU ended at once (${exit.signal ?? `exit status ${exit.code}`})${line === '' ? '' : `: ${line}`}`
}

function qemuDoesNotRun(qemu: string): VmError {
  return new VmError({
    kind: 'no_qemu',
    phase: 'prepare',
    expected: `${qemu} --version to print a version`,
    seen: 'it did not run',
    remedy: 'Reinstall QEMU (Debian: apt install qemu-system-x86).',
  })
}

/** Covers every input of the result, including user rights, since a user may join the group kvm. */
async function machineKey(qemu: string): Promise<string> {
  const [bwrap, setpriv] = await Promise.all([findProgram('bwrap'), findProgram('setpriv')])
  const stamps = await Promise.all([qemu, bwrap, setpriv].map(stampFile))
  const candidates = await findCandidates()
  const facts = [stamps, candidates, process.geteuid?.(), process.platform, release(), cpus()[0]?.model]
  return createHash('sha256').update(JSON.stringify(facts)).digest('hex').slice(0, 32)
}

async function readMachine(file: string): Promise<Machine | undefined> {
  try {
    const parsed = machineSchema.safeParse(JSON.parse(await readFile(file, 'utf8')))
    return parsed.success ? parsed.data : undefined
  } catch {
    return undefined
  }
}

async function writeMachine(file: string, machine: Machine): Promise<void> {
  await mkdir(dirname(file), { recursive: true, mode: 0o700 })
  const draft = `${file}.${randomBytes(4).toString('hex')}`
  await writeFile(draft, `${JSON.stringify(machine, null, 2)}\n`, { mode: 0o600 })
  await rename(draft, file)
}
