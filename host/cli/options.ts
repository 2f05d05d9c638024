/**
 * What commands share: how their actions run, common arguments and options, and how values are read. A wrong
 * value is a usage error that names the option.
 */
import { type Command, InvalidArgumentError, Option } from 'commander'
import type { VmOptions } from '../vm/vm-options.ts'

/** Makes a command's action from a function that takes the streams, then the arguments and options, and returns the exit code. */
export type RunAction = (
  action: (...args: never[]) => Promise<number>,
) => (...args: unknown[]) => Promise<void>

/** An action whose file loads when it runs, so that `--help` and completion load no library. */
export function lazy<Args extends readonly unknown[]>(
  load: () => Promise<(...args: Args) => Promise<number>>,
): (...args: Args) => Promise<number> {
  return async (...args) => (await load())(...args)
}

/** The task and the directory of `run` without a task. */
export interface Example {
  readonly task: string
  readonly workspace: string
}

/** Set for commands that a conversation runs: their lines name its commands, and repeat no notice. */
export interface InConversation {
  readonly conversation?: { readonly told: Set<string> }
}

/** What a command takes beside what commander parses. */
export interface CommandInput {
  /** What `run` does without a task. */
  readonly example?: Example | undefined
  /** What follows `--` of `vm shell`. */
  readonly guestCommand: readonly string[]
  /** Runs another command line in this process; resolves with its exit code. */
  readonly runCommand: (argv: readonly string[], within?: InConversation) => Promise<number>
}

export const runArgument =
  'run ID, a unique prefix of it, or "last" (most recently started in this directory)'
export const vmArgument = 'VM ID, run ID, a unique prefix of either, or "last" (most recently started)'

const units: Readonly<Record<string, number>> = { '': 1, k: 1024, m: 1024 ** 2, g: 1024 ** 3, t: 1024 ** 4 }

/** `512M`, `2G`, `8GiB`: bytes, in powers of 1024. */
export function parseSize(text: string): number {
  const match = /^(\d{1,9})\s*([kmgt]?)(?:i?b)?$/i.exec(text.trim())
  const unit = units[(match?.[2] ?? '').toLowerCase()]
  if (match?.[1] === undefined || unit === undefined)
    throw new InvalidArgumentError('expected a size, for example 512M or 2G')
  return Number(match[1]) * unit
}

/** `90`, `90s`, `10m`, `2h`: milliseconds; without a unit seconds. */
export function parseDuration(text: string): number {
  const match = /^(\d{1,7})\s*(ms|s|m|h)?$/.exec(text.trim())
  const factor = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 }[match?.[2] ?? 's']
  if (match?.[1] === undefined || factor === undefined)
    throw new InvalidArgumentError('expected a duration, for example 90s, 10m or 2h')
  return Number(match[1]) * factor
}

/** `12h`, `30d`, `4w`: milliseconds. */
export function parseAge(text: string): number {
  const match = /^(\d{1,5})\s*(h|d|w)$/.exec(text.trim())
  const factor = { h: 1, d: 24, w: 168 }[match?.[2] ?? '']
  if (match?.[1] === undefined || factor === undefined)
    throw new InvalidArgumentError('expected an age, for example 12h, 30d or 4w')
  return Number(match[1]) * factor * 3_600_000
}

/** A whole number of at least 1. */
export function parseCount(text: string): number {
  if (!/^[1-9]\d{0,9}$/.test(text)) throw new InvalidArgumentError('expected a whole number of at least 1')
  return Number(text)
}

/** A whole number, 0 too. */
export function parseCountOrNone(text: string): number {
  return text === '0' ? 0 : parseCount(text)
}

/** `5`, `0.50`: US dollars, more than none. */
export function parseDollars(text: string): number {
  const dollars = /^\d{1,6}(\.\d{1,6})?$/.test(text) ? Number(text) : 0
  if (dollars <= 0) throw new InvalidArgumentError('expected US dollars, for example 5 or 0.50')
  return dollars
}

/** The flags of options that messages of the library name. */
const flags: Readonly<Record<string, string>> = {
  'approvals.mode': '--approve',
  'approvals.rules': '--approve FILE',
  'egress.rules': '--allow-host',
  effort: '--effort',
  fallback: '--fallback',
  folders: '--add-dir',
  images: '--image',
  'limits.maxAgents': '--max-agents',
  'limits.maxCostUsd': '--max-cost',
  'limits.maxDepth': '--max-depth',
  model: '--model',
  outputSchema: '--output-schema',
  'plan.only': '--plan-only',
  replay: '--replay',
  stepModels: '--step-model',
  'vm.accelerator': '--accel',
}

/** A message of the library with flags for its options: `option approvals.mode: all` becomes `--approve all`. */
export function withFlags(text: string): string {
  return text.replaceAll(/\boption ([a-zA-Z.]*[a-zA-Z])(?::(?= \S))?/g, (whole, name: string) =>
    Object.hasOwn(flags, name) ? (flags[name] ?? whole) : whole,
  )
}

/** Collects an option that may be given several times. */
export function collect(value: string, previous: string[] = []): string[] {
  return [...previous, value]
}

/** Variables for one command. */
export function addEnvFileOption(command: Command): Command {
  return command.option(
    '--env-file <file>',
    'file of variables, as .env.example has them; those of the environment win',
  )
}

/** Settings of the configuration for one command. */
export function addConfigOption(command: Command): Command {
  return command.option(
    '-c, --config <key=value>',
    'setting for this command over the configuration, such as limits.maxTokens=50000; repeatable',
    collect,
  )
}

/** The values of the options of `addVmOptions`. */
export interface VmFlags {
  readonly ram?: number
  readonly cpus?: number
  readonly disk?: number
  readonly accel: 'auto' | 'kvm' | 'hvf' | 'tcg'
  readonly qemuSandbox: 'auto' | 'require'
}

/** The same as options of the library. */
export function vmOptionsOf({ ram, cpus, disk, accel, qemuSandbox }: VmFlags): VmOptions {
  return {
    accelerator: accel,
    confine: qemuSandbox,
    ...(ram === undefined ? {} : { memoryBytes: ram }),
    ...(cpus === undefined ? {} : { cpus }),
    ...(disk === undefined ? {} : { diskBytes: disk }),
  }
}

/** The size of a VM, and the machine that it is. */
export function addVmOptions(command: Command): Command {
  return command
    .option('--ram <size>', 'memory of the VM, for example 1G', parseSize)
    .option('--cpus <count>', 'number of CPUs of the VM', parseCount)
    .option('--disk <size>', 'writable disk space of the VM, for example 8G', parseSize)
    .addOption(
      new Option('--accel <name>', 'accelerator of QEMU; auto tries what is available')
        .choices(['auto', 'kvm', 'hvf', 'tcg'])
        .default('auto'),
    )
    .addOption(
      new Option(
        '--qemu-sandbox <how>',
        'sandbox around QEMU; require fails if the full sandbox is not available',
      )
        .choices(['auto', 'require'])
        .default('auto'),
    )
}

/** What may leave the VM, for one run. */
export function addEgressOptions(command: Command): Command {
  return command
    .option('--allow-host <host>', 'allow https requests to this host; repeatable', collect)
    .option('--egress <file>', 'file of egress rules for this run')
}

/** How much of a run is shown. */
export function addDetailOptions(command: Command): Command {
  return command
    .option('-v, --verbose', 'show whole arguments and outputs, reasoning, model requests and VM use')
    .option('--reasoning', 'show what the model reasons')
}
