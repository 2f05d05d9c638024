/**
 * Where a sparse file has content, without reading its holes: Node has no call for it, and GNU tar prints it before the content.
 * Says nothing where tar is missing or another one; then the whole file has to be read.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'

export interface Extent {
  readonly at: number
  readonly bytes: number
}

const blockBytes = 512
/** A map with more parts tells little. */
const mapMaxBytes = 4 * 1024 * 1024
const timeoutMs = 10_000

/** In the order of the file. Undefined: not known. */
export async function findContent(file: string, fileBytes: number): Promise<Extent[] | undefined> {
  const argv = ['-cSf', '-', '--format=posix', '--hole-detection=seek', '--', path.resolve(file)]
  const env = { PATH: process.env.PATH, LC_ALL: 'C' }
  const child = spawn('tar', argv, { env, stdio: ['ignore', 'pipe', 'ignore'], timeout: timeoutMs })
  const ended = once(child, 'close').catch(() => undefined)
  try {
    let held: Buffer = Buffer.alloc(0)
    for await (const piece of child.stdout as AsyncIterable<Buffer>) {
      held = Buffer.concat([held, piece])
      const found = readMap(held, fileBytes)
      if (found !== 'more') return found
      if (held.length > mapMaxBytes) return undefined
    }
    return undefined
  } catch {
    return undefined
  } finally {
    child.kill('SIGKILL')
    await ended
  }
}

/**
 * The map at the beginning of an archive with one file, in the form 1.0
 * (https://www.gnu.org/software/tar/manual/html_node/PAX-1.html).
 */
export function readMap(archive: Buffer, fileBytes: number): Extent[] | undefined | 'more' {
  let at = 0
  let isSparse = false
  for (;;) {
    const head = archive.subarray(at, at + blockBytes)
    if (head.length < blockBytes) return 'more'
    at += blockBytes
    const type = head.toString('latin1', 156, 157)
    if (type !== 'x')
      return isSparse && type === '0' ? readExtents(archive.subarray(at), fileBytes) : undefined
    const bytes = Number.parseInt(head.toString('latin1', 124, 135), 8)
    if (!(bytes >= 0 && bytes <= mapMaxBytes)) return undefined
    const records = archive.subarray(at, at + bytes)
    if (records.length < bytes) return 'more'
    const text = records.toString('utf8')
    isSparse = ['major=1', 'minor=0', `realsize=${fileBytes}`].every((one) =>
      text.includes(` GNU.sparse.${one}\n`),
    )
    at += Math.ceil(bytes / blockBytes) * blockBytes
  }
}

function readExtents(content: Buffer, fileBytes: number): Extent[] | undefined | 'more' {
  const lines = content.toString('latin1').split('\n')
  const count = Number(lines[0])
  if (lines.length < 2) return 'more'
  if (!Number.isSafeInteger(count) || count < 0 || count > mapMaxBytes) return undefined
  // The last one is whole when another begins behind it.
  if (lines.length < 2 * count + 2) return 'more'
  const found: Extent[] = []
  let end = 0
  for (let index = 0; index < count; index += 1) {
    const [at, bytes] = [Number(lines[1 + 2 * index]), Number(lines[2 + 2 * index])]
    if (!Number.isSafeInteger(at) || !Number.isSafeInteger(bytes) || at < end || bytes < 0) return undefined
    end = at + bytes
    if (end > fileBytes) return undefined
    if (bytes > 0) found.push({ at, bytes })
  }
  return found
}
