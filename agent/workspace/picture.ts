/** Reads images out of open files: by their bytes, whole, within the bounds of `specs/protocol/image.ts`. */
import { Buffer } from 'node:buffer'
import { createHash } from 'node:crypto'
import { readSync } from 'node:fs'
import type { OpenFile } from '#specs/node/place.ts'
import type { Result } from '#specs/protocol/error.ts'
import { type ImageRef, imageMaxBytes, nameOfType, readImage, sniffImage } from '#specs/protocol/image.ts'
import { type FileToolsOptions, withPlace } from './file-access.ts'

interface FilePicture {
  readonly image: ImageRef
  /** As a data URL. */
  readonly url: string
}

/** Null when the file does not begin as an image; the error says why one cannot be shown. */
export function readPicture({ fd, stat }: OpenFile): Result<FilePicture, string> | null {
  const head = Buffer.alloc(12)
  const type = sniffImage(head.subarray(0, readSync(fd, head, 0, head.length, 0)))
  if (type === null) return null
  if (stat.size > imageMaxBytes) {
    return {
      ok: false,
      error: `a ${nameOfType(type)} image may have at most ${imageMaxBytes} bytes; make a smaller copy`,
    }
  }
  // One byte more: the file may have grown.
  const bytes = Buffer.alloc(imageMaxBytes + 1)
  let size = 0
  for (let count = -1; count !== 0 && size < bytes.length; size += count) {
    count = readSync(fd, bytes, size, bytes.length - size, size)
  }
  const whole = bytes.subarray(0, size)
  const read = readImage(whole)
  if (!read.ok) return read
  const sha256 = createHash('sha256').update(whole).digest('hex')
  const url = `data:${read.value.type};base64,${whole.toString('base64')}`
  return { ok: true, value: { image: { sha256, ...read.value }, url } }
}

/** An image of the workspace; the error says why there is none. */
export async function readWorkspacePicture(
  options: FileToolsOptions,
  path: string,
): Promise<Result<FilePicture, string>> {
  const found = await withPlace(options, path, {}, (place) => {
    const opened = place.openFile('read')
    if (!opened.ok) return opened
    using file = opened.value
    return { ok: true, value: readPicture(file) }
  })
  if (!found.ok) return { ok: false, error: found.error.message }
  return found.value ?? { ok: false, error: 'it is no PNG, JPEG, WebP or GIF image' }
}
