/**
 * `caisson vm shell`: a terminal or one command in a VM, for whose output the person's terminal is as open as
 * to any remote shell.
 */

import { constants } from 'node:os'
import type { Writable } from 'node:stream'
import { StringDecoder } from 'node:string_decoder'
import { CaissonError } from '#specs/errors.ts'
import { waitForDrain } from '#specs/node/drain.ts'
import type { Shell, ShellEnd } from '../../control/shell.ts'
import { VmClient } from '../../control/vm-client.ts'
import type { Host } from '../../host.ts'
import { requireAccelerator } from '../../resolve-run.ts'
import { openSandboxNetwork } from '../../sandbox/sandbox-network.ts'
import { StandaloneVm, type StandaloneVmOptions } from '../../sandbox/standalone-vm.ts'
import { Settings } from '../../settings.ts'
import { exitCodes } from '../exit-codes.ts'
import { StopOnSignal } from '../interrupts.ts'
import { findVm, hostOf, type Io } from '../io.ts'
import { type VmFlags, vmOptionsOf } from '../options.ts'
import { RawTerminal } from '../prompts/terminal-input.ts'
import { sanitizeLine } from '../render/sanitize.ts'
import { rulesOfFlags } from './policy.ts'

/** @param command what follows `--`: the guest's command */
export interface ShellFlags extends VmFlags {
  readonly workspace?: string
  readonly plain?: boolean
  readonly allowHost?: string[]
  /** A file of rules of egress. */
  readonly egress?: string
}

/** @returns the program's own exit code; 128 and the signal's number where one ended it, 1 where nobody can say */
export async function vmShell(
  io: Io,
  command: readonly string[],
  name: string | undefined,
  flags: ShellFlags,
): Promise<number> {
  const hasTerminal = io.stdin.isTTY === true && io.stdout.isTTY === true
  if (command.length === 0 && !hasTerminal) {
    throw new CaissonError(
      'invalid_options',
      'a shell needs a terminal on standard input and output; without one, run a command: caisson vm shell VM -- COMMAND',
    )
  }
  const host = hostOf(io)
  const open = (vm: VmClient) =>
    command.length === 0
      ? runShell(io, vm, flags.plain === true)
      : runCommand(io, vm, command, flags.plain === true)
  const running = name === undefined ? await host.vms.findOnly() : await findVm(io, name)
  if (running !== null) {
    if (hasEgress(flags))
      throw new CaissonError(
        'invalid_options',
        `${running.info.id} runs already, and --allow-host and --egress are for a new VM; stop it first, or run a task with these options`,
      )
    announce(io, running, command)
    return await open(running)
  }
  using stop = new StopOnSignal('ends the process')
  await using bench = await bootOne(io, host, flags, stop.signal)
  stop[Symbol.dispose]()
  const stopRequest = endWhenTold(io, bench)
  const code = await open(await VmClient.connect(host.vms.socketOf(bench.vm.id)))
  stopRequest.report()
  return code
}

/** `caisson vm stop` of another process ends the VM, and with it the shell. */
function endWhenTold(io: Io, bench: StandaloneVm): { report(): void } {
  let isReported = false
  void bench.stopped.then(() => {
    isReported = true
    return bench.vm.stop()
  })
  return { report: () => void (isReported && io.stderr.write('The VM was stopped by another process.\n')) }
}

function announce(io: Io, { info }: VmClient, command: readonly string[]): void {
  if (command.length > 0) return
  const what =
    info.runId === null ? '' : ` of ${info.runId}; your changes become part of the changes of the run`
  io.stderr.write(
    `In ${info.id}${what}. To leave, type exit, or press Enter and type ~. if the shell does not respond.\n`,
  )
}

/** A VM on a copy of the directory, which ends with the shell. */
async function bootOne(io: Io, host: Host, flags: ShellFlags, signal: AbortSignal): Promise<StandaloneVm> {
  const directory = flags.workspace ?? process.cwd()
  io.stderr.write(
    `No VM is running: starting one on a copy of ${sanitizeLine(directory)}. Its changes are discarded when this shell ends.\n`,
  )
  const vm = vmOptionsOf(flags)
  await requireAccelerator(vm, host.folders, signal)
  const image = await host.image({ signal, onProgress: (text) => io.stderr.write(`${sanitizeLine(text)}\n`) })
  const bench = await StandaloneVm.open({
    image,
    folders: host.folders,
    vm,
    directory,
    signal,
    ...(await networkOf(io, host, flags)),
  })
  try {
    await bench.ready
    return bench
  } catch (error) {
    await bench[Symbol.asyncDispose]()
    throw error
  }
}

/** What the rules of the options and of the configuration allow, judged as of a run; without one of these options nothing. */
async function networkOf(
  io: Io,
  host: Host,
  flags: ShellFlags,
): Promise<Pick<StandaloneVmOptions, 'network'>> {
  if (!hasEgress(flags)) return {}
  const policy = await host.egressPolicy(await rulesOfFlags(flags))
  const network = new Settings({ folders: host.folders, env: io.env }).network(await host.config())
  const remedy = 'start the VM with --allow-host HOST'
  return { network: (log) => openSandboxNetwork({ policy, network, log, remedy }) }
}

function hasEgress({ allowHost, egress }: ShellFlags): boolean {
  return allowHost !== undefined || egress !== undefined
}

async function runShell(io: Io, vm: VmClient, plain: boolean): Promise<number> {
  using terminal = new RawTerminal(io.stdin, io.stdout, !plain)
  const term = plain ? 'dumb' : termOf(io.env.TERM)
  const shell = await vm.openShell({ argv: [], terminal: { ...terminal.size, term } })
  const keys = new EscapeKeys()
  const onKeys = (typed: Buffer | string): void => {
    const passed = keys.feed(Buffer.from(typed as string))
    if (passed.length > 0) shell.stdin.write(passed)
    if (keys.hasLeft) shell.kill()
  }
  const onResize = (): void => shell.resize(terminal.size.columns, terminal.size.rows)
  io.stdin.on('data', onKeys)
  io.stdout.on('resize', onResize)
  const leave = endingBySignal(shell, io)
  try {
    await copy(shell.stdout, io.stdout, plain, shell)
    const end = await shell.ended
    terminal[Symbol.dispose]()
    if (keys.hasLeft || leave.signal !== null) {
      io.stderr.write('Left the shell; its programs were stopped.\n')
      return leave.signal === null ? exitCodes.completed : exitCodes.cancelled
    }
    return codeOf(io, end)
  } finally {
    leave.off()
    io.stdin.off('data', onKeys)
    io.stdout.off('resize', onResize)
  }
}

async function runCommand(io: Io, vm: VmClient, argv: readonly string[], plain: boolean): Promise<number> {
  const shell = await vm.openShell({ argv: [...argv], terminal: null })
  const leave = endingBySignal(shell, io)
  io.stdin.pipe(shell.stdin)
  try {
    await Promise.all([
      copy(shell.stdout, io.stdout, plain, shell),
      copy(shell.stderr, io.stderr, plain, shell),
    ])
    const end = await shell.ended
    return leave.signal === null ? codeOf(io, end) : exitCodes.cancelled
  } finally {
    leave.off()
    io.stdin.unpipe(shell.stdin)
    io.stdin.pause()
  }
}

/** Copies until the end; a reader that is gone ends the program. */
async function copy(from: AsyncIterable<Buffer>, to: Writable, plain: boolean, shell: Shell): Promise<void> {
  const filter = plain ? new PlainOutput() : null
  for await (const piece of from) {
    if (to.destroyed || to.errored !== null) {
      shell.kill()
      return
    }
    if (!to.write(filter === null ? piece : filter.feed(piece))) await waitForDrain(to)
  }
  const rest = filter?.end() ?? ''
  if (rest !== '') to.write(rest)
}

/** Ends the shell when this process was asked to end or its terminal closes. */
function endingBySignal(shell: Shell, io: Io): { readonly signal: string | null; off(): void } {
  const names = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
  const state = {
    signal: null as string | null,
    off: () => {
      for (const name of names) process.off(name, onSignal)
      io.stdout.off('error', onBroken)
    },
  }
  const onSignal = (name: string): void => {
    state.signal ??= name
    shell.kill()
  }
  const onBroken = (): void => onSignal('SIGPIPE')
  for (const name of names) process.on(name, onSignal)
  io.stdout.on('error', onBroken)
  return state
}

function codeOf(io: Io, end: ShellEnd): number {
  if (end.kind === 'lost') {
    io.stderr.write(`caisson: the connection to the shell was lost: ${sanitizeLine(end.message)}\n`)
    return exitCodes.failed
  }
  const code =
    end.kind === 'exited'
      ? end.exitCode
      : 128 + ((constants.signals as Readonly<Record<string, number>>)[end.signal] ?? 0)
  if (end.outOfMemory && code === 137)
    io.stderr.write('caisson: the program was killed because the VM ran out of memory; increase --ram\n')
  return code
}

/** The person's type of terminal, as far as it can be one. */
function termOf(term: string | undefined): string {
  return term !== undefined && /^[A-Za-z0-9][A-Za-z0-9+._-]{0,63}$/.test(term) ? term : 'xterm'
}

/** Leaves a shell that does not respond: at the start of a line `~.` leaves, `~~` is one `~`. */
export class EscapeKeys {
  #isLineStart = true
  #isPending = false
  #hasLeft = false

  /** Whether `~.` was typed. */
  get hasLeft(): boolean {
    return this.#hasLeft
  }

  /** The keys that are for the program. */
  feed(keys: Uint8Array): Buffer {
    const passed: number[] = []
    for (const key of keys) {
      if (this.#hasLeft) break
      this.#take(key, passed)
    }
    return Buffer.from(passed)
  }

  #take(key: number, passed: number[]): void {
    const [tilde, dot, carriageReturn, lineFeed] = [0x7e, 0x2e, 0x0d, 0x0a]
    if (this.#isPending) {
      this.#isPending = false
      if (key === dot) {
        this.#hasLeft = true
        return
      }
      passed.push(tilde)
      if (key === tilde) return
    } else if (this.#isLineStart && key === tilde) {
      this.#isPending = true
      this.#isLineStart = false
      return
    }
    this.#isLineStart = key === carriageReturn || key === lineFeed
    passed.push(key)
  }
}

/** What a terminal without any capabilities needs for the editing of a line. */
const kept = /([\n\r\t\b])/

/** Output of the guest, for a terminal that must not interpret its escape sequences. */
export class PlainOutput {
  readonly #decoder = new StringDecoder('utf8')

  /** The text of the next bytes; a character that is cut waits for the rest of it. */
  feed(bytes: Uint8Array): string {
    return escapeOutput(this.#decoder.write(Buffer.from(bytes)))
  }

  end(): string {
    return escapeOutput(this.#decoder.end())
  }
}

function escapeOutput(text: string): string {
  return text
    .split(kept)
    .map((part, index) => (index % 2 === 1 ? part : sanitizeLine(part, Number.POSITIVE_INFINITY)))
    .join('')
}
