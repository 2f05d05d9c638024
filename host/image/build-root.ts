// Runs vm-image/build.sh and turns what it says into progress and typed errors. Knows nothing of keys and caches.

import { spawn } from 'node:child_process'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { trustedSearchPath } from '../processes/programs.ts'
import { buildEnvironment } from './build-environment.ts'
import { ImageError, type ImageErrorKind } from './image-error.ts'
import { requireRootTools } from './platform.ts'
import type { Architecture } from './recipe-key.ts'

const STDERR_TAIL_CHARS = 4000
/** Of the build after SIGTERM; it removes its work folder in this time. */
const KILL_AFTER_MS = 5000

interface BuildRootOptions {
  /** The folder of build.sh. */
  readonly recipe: string
  readonly arch: Architecture
  /** Downloads are kept here, and the work folder is made here. */
  readonly cacheDir: string
  /** Where the three files go; absent when only the lock is wanted. */
  readonly out?: string
  /** Resolve the packages again and write packages.lock.json first. */
  readonly updateLock?: boolean
  readonly onProgress?: (text: string) => void
  readonly signal?: AbortSignal
}

/** Builds kernel, initramfs and root. @throws {ImageError} */
export async function buildRoot(options: BuildRootOptions): Promise<void> {
  const { bash } = await requireRootTools()
  const { recipe, arch, cacheDir, out, updateLock, onProgress, signal } = options
  if (isAborted(signal)) throw buildCancelled()
  const args = [path.join(recipe, 'build.sh'), '--arch', arch, '--cache', cacheDir]
  if (out !== undefined) args.push('--out', out)
  if (updateLock === true) args.push('--update-lock')
  // The recipe's helper runs under this very Node, whose folder is trusted as this process is.
  const search = [path.dirname(process.execPath), await trustedSearchPath()].join(path.delimiter)
  const child = spawn(bash, args, {
    // A group of its own, so that cancelling reaches apt, tar and mkfs too.
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: buildEnvironment(search),
  })
  let kill: NodeJS.Timeout | undefined
  const stop = () => {
    signalGroup(child.pid, 'SIGTERM')
    kill = setTimeout(() => signalGroup(child.pid, 'SIGKILL'), KILL_AFTER_MS)
  }
  signal?.addEventListener('abort', stop, { once: true })
  let stderr = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr = (stderr + text).slice(-STDERR_TAIL_CHARS)
  })
  createInterface({ input: child.stdout }).on('line', (line) => {
    if (line.startsWith('step ')) onProgress?.(`image: ${line.slice(5)}`)
  })
  try {
    const status = await new Promise<number | null>((resolve, reject) => {
      child.once('error', reject).once('close', resolve)
    })
    if (isAborted(signal)) throw buildCancelled()
    if (status !== 0) throw errorFrom(stderr, status)
  } finally {
    clearTimeout(kill)
    signal?.removeEventListener('abort', stop)
  }
}

/** A call, so that the compiler does not take the answer before a wait for the one after it. */
function isAborted(signal: AbortSignal | undefined): boolean {
  return signal?.aborted === true
}

function signalGroup(pid: number | undefined, name: 'SIGTERM' | 'SIGKILL'): void {
  try {
    if (pid !== undefined) process.kill(-pid, name)
  } catch {
    // It has ended.
  }
}

export function buildCancelled(): ImageError {
  return new ImageError('cancelled', 'the build was cancelled', 'start again; downloads are kept')
}

const knownCodes = new Set<string>([
  'tools_missing',
  'lock_unsatisfied',
  'lock_unreadable',
  'download_failed',
  'digest_mismatch',
  'build_failed',
] satisfies ImageErrorKind[])

/** The error in the script's last line on stderr: `caisson-image: ERROR CODE: TEXT`. Exported for tests. */
export function errorFrom(stderr: string, status: number | null): ImageError {
  const found = [...stderr.matchAll(/^caisson-image: ERROR (\w+): (.*)$/gm)].at(-1)
  const [, code = '', text = ''] = found ?? []
  if (knownCodes.has(code)) return new ImageError(code as ImageErrorKind, text, '')
  const tail = stderr.trim().split('\n').slice(-3).join(' / ') || 'nothing on stderr'
  return new ImageError(
    'build_failed',
    `build.sh ended with status ${status ?? 'none'}: ${text || tail}`,
    'start again; if it fails again, run vm-image/build.sh manually',
  )
}
