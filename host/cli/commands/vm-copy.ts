/** `caisson vm cp`: files into a VM and out of it, by the rules of `docker cp`. */
import type { Writable } from 'node:stream'
import { CaissonError } from '#specs/errors.ts'
import { waitForDrain } from '#specs/node/drain.ts'
import type { CopyOptions, CopyResult } from '../../control/copy.ts'
import { formatBytes, formatCount } from '../../files/format.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { StopOnSignal } from '../interrupts.ts'
import { hostOf, type Io } from '../io.ts'
import { sanitizeLine } from '../render/sanitize.ts'

const shownLeftOut = 20

interface CopyFlags {
  readonly maxSize?: number
}

export async function vmCopy(io: Io, from: string, to: string, flags: CopyFlags): Promise<ExitCode> {
  const [source, target] = [readPlace(from), readPlace(to)]
  using stop = new StopOnSignal('ends the process')
  const options: CopyOptions = {
    signal: stop.signal,
    ...(flags.maxSize === undefined ? {} : { maxBytes: flags.maxSize }),
  }
  const { vms } = hostOf(io)
  if (typeof source === 'string' && typeof target !== 'string') {
    if (source === '-') requirePipe(io.stdin, 'standard input')
    const vm = await vms.find(target.vm)
    if (source !== '-') return report(io, await vm.copyIn(source, target.path, options))
    await vm.writeArchive(io.stdin, target.path, options)
    return exitCodes.completed
  }
  if (typeof source !== 'string' && typeof target === 'string') {
    if (target === '-') requirePipe(io.stdout, 'standard output')
    const vm = await vms.find(source.vm)
    if (target !== '-') return report(io, await vm.copyOut(source.path, target, options))
    await send(vm.readArchive(source.path, options), io.stdout)
    return exitCodes.completed
  }
  throw new CaissonError(
    'invalid_options',
    'expected one VM:PATH and one local path or -; for a local name with a colon write ./NAME',
  )
}

/** As Docker reads it: what stands before the first colon is a VM, unless it has the form of a local path. */
function readPlace(text: string): string | { readonly vm: string; readonly path: string } {
  const at = text.indexOf(':')
  if (at <= 0 || /^[./]/.test(text) || text.slice(0, at).includes('/')) return text
  return { vm: text.slice(0, at), path: text.slice(at + 1) }
}

function requirePipe({ isTTY }: { readonly isTTY?: boolean }, what: string): void {
  if (isTTY !== true) return
  throw new CaissonError(
    'invalid_options',
    `an archive needs ${what} on a pipe or a file, and it is a terminal`,
  )
}

async function send(pieces: AsyncIterable<Buffer>, to: Writable): Promise<void> {
  for await (const piece of pieces) {
    if (to.destroyed || to.errored !== null)
      throw new CaissonError('not_possible_now', 'standard output was closed before the end of the archive')
    if (!to.write(piece)) await waitForDrain(to)
  }
}

function report(io: Io, { files, bytes, leftOut, leftOutCount }: CopyResult): ExitCode {
  io.stderr.write(`copied ${formatCount(files, 'file')}, ${formatBytes(bytes)}\n`)
  if (leftOutCount === 0) return exitCodes.completed
  for (const { path, reason } of leftOut.slice(0, shownLeftOut))
    io.stderr.write(`not copied: ${sanitizeLine(path)}: ${reason}\n`)
  if (leftOutCount > shownLeftOut) io.stderr.write(`and ${leftOutCount - shownLeftOut} more\n`)
  return exitCodes.failed
}
