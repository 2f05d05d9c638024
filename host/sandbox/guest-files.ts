/**
 * Files of one VM below /mnt/workspace, by small programs in the guest. A path that leads elsewhere is refused, here by
 * its text and in the guest by what its links lead to. What comes back is the guest's: bytes and names that may be anything.
 */
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { Semaphore } from '#specs/node/semaphore.ts'
import { limits } from '#specs/protocol/limits.ts'
import { checkArguments, type Names, SignalOption } from '../files/check-arguments.ts'
import { GuestBytes, guestWorkspace, runInGuest, type ShellOpener } from './guest-command.ts'

export interface FileOptions {
  /** Ends the call, which then rejects with `cancelled`. */
  readonly signal?: AbortSignal
}

export interface ReadFileOptions extends FileOptions {
  /** Bytes beyond which the call rejects with `limit_reached`, at most 1 GiB. Default 64 MiB. */
  readonly maxBytes?: number
}

/** One entry of a directory. */
export interface SandboxFile {
  /** Untrusted text. */
  readonly name: string
  readonly type: 'file' | 'directory' | 'link' | 'other'
  /** Of a file its size. */
  readonly bytes: number
}

const defaultReadBytes = 64 * 1024 * 1024
const readMaxBytes = 1024 ** 3
const listMaxBytes = 16 * 1024 * 1024
const errorMaxBytes = 4_096
/** Programs at once: the others of a VM's few are for commands. */
const maxAtOnce = 2

const Path = z
  .string()
  .min(1)
  .max(limits.pathMaxBytes)
  .refine((text) => !text.includes('\0') && text.isWellFormed(), 'expected a path without NUL')
const CallOptions = z.strictObject({ signal: SignalOption })
const ReadOptions = CallOptions.extend({ maxBytes: z.int().min(0).max(readMaxBytes).optional() })
const callNames: Names = { '': Object.keys(CallOptions.shape) }
const readNames: Names = { '': Object.keys(ReadOptions.shape) }
const badOptions = 'the options of the call cannot be used'

/** Exit codes of the programs below. `cat`, `find` and `rm` have none of them. */
const exits = { missing: 66, outside: 67, kind: 68 } as const

/** `$p` becomes the place that `$1` leads to; the `x` keeps line ends in a name. */
const inside = `export LC_ALL=C
p=$(realpath -m -- "$1" 2>/dev/null && echo x) || exit ${exits.missing}
p=\${p%??}
case "$p" in ${guestWorkspace}|${guestWorkspace}/*) ;; *) exit ${exits.outside} ;; esac
`
const existing = `${inside}[ -e "$p" ] || exit ${exits.missing}
`
const programs = {
  read: `${existing}[ -f "$p" ] || exit ${exits.kind}
exec cat -- "$p"`,
  write: `${inside}if [ -e "$p" ] && [ ! -f "$p" ]; then exit ${exits.kind}; fi
mkdir -p -- "\${p%/*}" || exit 1
exec cat > "$p"`,
  list: `${existing}[ -d "$p" ] || exit ${exits.kind}
exec find "$p" -mindepth 1 -maxdepth 1 -printf '%y\\0%s\\0%f\\0'`,
  /** `$1` is the directory, `$2` the name in it: a link is removed and not what it leads to. */
  remove: `${existing}[ -e "$p/$2" ] || [ -L "$p/$2" ] || exit ${exits.missing}
exec rm -rf -- "$p/$2"`,
} as const

export class GuestFiles {
  readonly #vm: ShellOpener
  readonly #places = new Semaphore(maxAtOnce)

  constructor(vm: ShellOpener) {
    this.#vm = vm
  }

  async read(path: string, options: ReadFileOptions = {}): Promise<Uint8Array> {
    const place = placeOf(path)
    checkArguments(badOptions, ReadOptions, options, readNames)
    return await this.#run('read', [place], { maxBytes: defaultReadBytes, ...options })
  }

  async write(path: string, data: string | Uint8Array, options: FileOptions = {}): Promise<void> {
    const place = placeOf(path)
    checkArguments('the data cannot be written', GuestBytes, data)
    checkArguments(badOptions, CallOptions, options, callNames)
    if (place === guestWorkspace) throw refused(path, 'it is the workspace itself')
    await this.#run('write', [place], options, data)
  }

  async list(path: string = '.', options: FileOptions = {}): Promise<SandboxFile[]> {
    const place = placeOf(path)
    checkArguments(badOptions, CallOptions, options, callNames)
    const output = await this.#run('list', [place], { ...options, maxBytes: listMaxBytes })
    const fields = Buffer.from(output).toString().split('\0')
    const files: SandboxFile[] = []
    for (let at = 0; at + 2 < fields.length; at += 3) {
      const [type = '', bytes = '', name = ''] = fields.slice(at, at + 3)
      files.push({ name, type: types[type] ?? 'other', bytes: Number(bytes) || 0 })
    }
    return files.toSorted((left, right) => (left.name < right.name ? -1 : 1))
  }

  async remove(path: string, options: FileOptions = {}): Promise<void> {
    const place = placeOf(path)
    checkArguments(badOptions, CallOptions, options, callNames)
    if (place === guestWorkspace) throw refused(path, 'it is the workspace itself')
    const cut = place.lastIndexOf('/')
    await this.#run('remove', [place.slice(0, cut), place.slice(cut + 1)], options)
  }

  /** @returns what the program wrote */
  async #run(
    program: keyof typeof programs,
    args: readonly string[],
    { signal, maxBytes = 0 }: ReadFileOptions,
    input?: string | Uint8Array,
  ): Promise<Uint8Array> {
    const path = args.join('/')
    const never = new AbortController().signal
    if (!(await this.#places.take(signal ?? never)))
      throw new CaissonError('cancelled', 'cancelled by the caller', { cause: signal?.reason })
    const output: Buffer[] = []
    let bytes = 0
    let problem = ''
    try {
      const { end } = await runInGuest(this.#vm, ['/bin/sh', '-c', programs[program], 'sh', ...args], {
        input,
        signal,
        onStdout: (piece) => {
          bytes += piece.length
          if (bytes > maxBytes) throw tooLarge(path, maxBytes)
          output.push(piece)
        },
        onStderr: (piece) => {
          problem = (problem + piece.toString()).slice(0, errorMaxBytes)
        },
      })
      const code = end?.kind === 'exited' ? end.exitCode : null
      if (code !== 0) throw failureOf(path, code, problem)
      return new Uint8Array(Buffer.concat(output))
    } finally {
      this.#places.giveBack()
    }
  }
}

const types: Readonly<Record<string, SandboxFile['type']>> = { f: 'file', d: 'directory', l: 'link' }

/** The path below the workspace, absolute. @throws {CaissonError} `invalid_options` for one that leads elsewhere */
function placeOf(path: string): string {
  checkArguments('the path cannot be used', Path, path)
  const isInside = !path.startsWith('/') || path === guestWorkspace || path.startsWith(`${guestWorkspace}/`)
  const parts = (path.startsWith('/') ? path.slice(guestWorkspace.length) : path).split('/')
  if (!isInside || parts.includes('..'))
    throw refused(path, `expected one below ${guestWorkspace} without ".."`)
  return [guestWorkspace, ...parts.filter((part) => part !== '' && part !== '.')].join('/')
}

function refused(path: string, why: string): CaissonError {
  return new CaissonError('invalid_options', `the path ${JSON.stringify(path)} cannot be used: ${why}`)
}

function tooLarge(path: string, maxBytes: number): CaissonError {
  return new CaissonError('limit_reached', `${JSON.stringify(path)} has more than ${maxBytes} bytes`, {
    remedy: 'raise maxBytes, or read a part of it with a command',
  })
}

function failureOf(path: string, code: number | null, problem: string): CaissonError {
  if (code === exits.outside) return refused(path, `it leads out of ${guestWorkspace}`)
  if (code === exits.kind) return refused(path, 'it is of another kind: a file or a directory was expected')
  if (code === exits.missing)
    return new CaissonError('file_not_found', `the sandbox has no ${JSON.stringify(path)}`)
  const why = problem.replaceAll(/[^\x20-\x7e]+/g, ' ').trim() || `exit code ${code}`
  const known = /Permission denied|Operation not permitted/.test(why)
    ? 'permission_denied'
    : /No space left/.test(why)
      ? 'no_space'
      : 'not_possible_now'
  return new CaissonError(known, `the sandbox could not use ${JSON.stringify(path)}: ${why}`)
}
