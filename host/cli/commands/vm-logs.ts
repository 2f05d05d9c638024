/** `caisson vm logs`: the console of a VM or the log of its agent, also of a run that has ended. */

import path from 'node:path'
import { StringDecoder } from 'node:string_decoder'
import { setTimeout as sleep } from 'node:timers/promises'
import { CaissonError, hasCode } from '#specs/errors.ts'
import type { VmClient } from '../../control/vm-client.ts'
import { openRegular } from '../../files/regular-file.ts'
import type { Host } from '../../host.ts'
import { standaloneVmLogName } from '../../sandbox/standalone-vm.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { StopOnSignal } from '../interrupts.ts'
import { findRun, findVm, hostOf, type Io } from '../io.ts'
import { sanitizeLine } from '../render/sanitize.ts'

export async function vmLogs(
  io: Io,
  name: string,
  flags: { follow?: boolean; agent?: boolean },
): Promise<ExitCode> {
  const host = hostOf(io)
  using stop = new StopOnSignal('ends the process')
  const follow = flags.follow === true
  const vm = await findVm(io, name).catch((error: unknown) => {
    if (hasCode(error, 'vm_not_found')) return null
    throw error
  })
  if (vm === null) return await logsOfEnded(io, host, name, flags.agent === true)
  if (flags.agent === true) {
    await printFile(io, agentLogOf(host, vm), follow ? vm.ended(stop.signal) : undefined)
    return exitCodes.completed
  }
  const lines = new LinePrinter(io)
  for await (const piece of vm.console({ follow, signal: stop.signal })) lines.write(piece)
  lines.end()
  return exitCodes.completed
}

function agentLogOf(host: Host, { info }: VmClient): string {
  return info.runId === null
    ? path.join(host.folders.vms, info.id, standaloneVmLogName)
    : host.runs.paths(info.runId).agentLog
}

const nothingSaid =
  'the console is empty, because the VM was restored from a template; use --agent for the log of the agent\n'

/** A run that has ended keeps both logs. @throws {CaissonError} `run_not_found` */
async function logsOfEnded(io: Io, host: Host, name: string, agent: boolean): Promise<ExitCode> {
  const runId = await findRun(io, name).catch((error: unknown) => {
    if (name === 'last') throw error
    throw new CaissonError(
      'vm_not_found',
      `no VM or run has the ID "${name}"; see: caisson vm list, caisson runs list`,
    )
  })
  const paths = host.runs.paths(runId)
  const isEmpty = !(await printFile(io, agent ? paths.agentLog : paths.console))
  // Nothing of it on standard output, where a program may be counting lines.
  if (isEmpty) io.stderr.write(agent ? 'the agent logged nothing\n' : nothingSaid)
  return exitCodes.completed
}

/**
 * Prints a file's lines; with `more` also what is added until that resolves. A file that is not there has none.
 * @returns whether there was anything
 */
async function printFile(io: Io, file: string, more?: Promise<unknown>): Promise<boolean> {
  const lines = new LinePrinter(io)
  let isOver = more === undefined
  void more?.then(() => {
    isOver = true
  })
  const handle = await openRegular(file).catch(() => null)
  if (handle === null) return false
  let isFound = false
  try {
    const buffer = Buffer.alloc(64 * 1024)
    for (;;) {
      const last = isOver
      const { bytesRead } = await handle.read(buffer)
      isFound ||= bytesRead > 0
      if (bytesRead > 0) lines.write(buffer.subarray(0, bytesRead))
      else if (last) return isFound
      else await sleep(200)
    }
  } finally {
    await handle.close()
    lines.end()
  }
}

/** Bytes of the guest as lines that a terminal shows and does not obey. */
class LinePrinter {
  readonly #io: Io
  readonly #decoder = new StringDecoder('utf8')
  #rest = ''

  constructor(io: Io) {
    this.#io = io
  }

  write(piece: Uint8Array): void {
    const lines = (this.#rest + this.#decoder.write(Buffer.from(piece))).split('\n')
    this.#rest = lines.pop() ?? ''
    // A line without an end is not waited for forever.
    if (this.#rest.length > 16_384) {
      lines.push(this.#rest)
      this.#rest = ''
    }
    for (const line of lines) this.#print(line)
  }

  end(): void {
    const rest = this.#rest + this.#decoder.end()
    if (rest !== '') this.#print(rest)
  }

  #print(line: string): void {
    this.#io.stdout.write(`${sanitizeLine(line.replace(/\r+$/, '').replaceAll('\t', '  '), 4_096)}\n`)
  }
}
