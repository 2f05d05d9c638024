/**
 * Images in a chat request: PNG, JPEG, WebP and GIF as data URLs. The first bytes decide the type, never its name.
 * Refuses remote addresses, other formats, and images that are truncated, too large or of extreme dimensions.
 */
import * as z from 'zod'
import type { Result } from './error.ts'
import { Sha256 } from './text.ts'

export const ImageType = z.enum(['image/png', 'image/jpeg', 'image/webp', 'image/gif'])
export type ImageType = z.infer<typeof ImageType>

export interface ImageFacts {
  readonly type: ImageType
  /** Pixels. */
  readonly width: number
  /** Pixels. */
  readonly height: number
  readonly sizeBytes: number
}

/** Maximum bytes of one image, before base64. */
export const imageMaxBytes = 1024 * 1024
/** Maximum width or height of an image in pixels; Anthropic refuses larger ones (docs.anthropic.com, vision, 2026-11). */
export const imageMaxPixels = 8_000
/** A file that a person names: relative to the workspace, or absolute in it. */
export const ImagePath = z
  .string()
  .min(1)
  .max(4_096)
  .refine((file) => !file.includes('\0'), 'expected a path without NUL')

/** An image by the digest of its bytes. */
export const ImageRef = z.strictObject({
  sha256: Sha256,
  type: ImageType,
  /** Pixels. */
  width: z.int().min(1).max(imageMaxPixels),
  /** Pixels. */
  height: z.int().min(1).max(imageMaxPixels),
  sizeBytes: z.int().min(1).max(imageMaxBytes),
})
export type ImageRef = z.infer<typeof ImageRef>

/** Maximum images of one request that a model gets; a note replaces each older one. */
export const imagesMaxCount = 8
/** Maximum bytes of all images of one request that a model gets, before base64. */
export const imagesMaxBytes = 3 * 1024 * 1024

/** Base64 characters of a whole image, and its prefix. */
const dataUrlMaxLength = Math.ceil(imageMaxBytes / 3) * 4 + 64
const dataUrlPattern = /^data:(image\/(?:png|jpeg|webp|gif));base64,/

/**
 * Estimated tokens of an image, rather too many than too few. A token for 28 by 28 pixels and at most 16,384, as the
 * card of Qwen2-VL-7B-Instruct says. At least 258, which Gemini counts for a small image (cloud.google.com, image
 * understanding). Others reduce large images: Claude to about 1,600 tokens (docs.anthropic.com, vision), Gemini 3 to
 * 1,120 (docs.cloud.google.com, image understanding). Looked up 2026-11.
 */
export function estimateImageTokens({ width, height }: Pick<ImageFacts, 'width' | 'height'>): number {
  return Math.min(Math.max(Math.ceil((width * height) / 784), 258), 16_384)
}

/** The two halves of a data URL that {@link readImageUrl} accepts; null for anything else. */
export function splitImageUrl(url: string): { readonly type: ImageType; readonly base64: string } | null {
  const [prefix, type] = dataUrlPattern.exec(url) ?? []
  return prefix === undefined ? null : { type: type as ImageType, base64: url.slice(prefix.length) }
}

/** Reads and checks the image of a data URL; the error says what is wrong with it. */
export function readImageUrl(url: string): Result<ImageFacts, string> {
  if (!url.startsWith('data:')) {
    return fail('an image must be a data URL; remote addresses are refused')
  }
  if (url.length > dataUrlMaxLength) return fail(`an image may have at most ${imageMaxBytes} bytes`)
  const split = splitImageUrl(url)
  if (split === null) return fail('an image must be PNG, JPEG, WebP or GIF in base64')
  const bytes = decodeBase64(split.base64)
  if (bytes === null) return fail('the image is not valid base64')
  const read = readImage(bytes)
  if (read.ok && read.value.type !== split.type) {
    return fail(`the image is ${read.value.type}, not ${split.type}`)
  }
  return read
}

/** The type that the first 12 bytes of a file name; null for none of the four. */
export function sniffImage(head: Uint8Array): ImageType | null {
  if (hasAt(head, 0, '\x89PNG\r\n\x1a\n')) return 'image/png'
  if (hasAt(head, 0, '\xff\xd8\xff')) return 'image/jpeg'
  if (hasAt(head, 0, 'GIF87a') || hasAt(head, 0, 'GIF89a')) return 'image/gif'
  return hasAt(head, 0, 'RIFF') && hasAt(head, 8, 'WEBP') ? 'image/webp' : null
}

/** `PNG` for `image/png`, for people and models. */
export function nameOfType(type: ImageType): string {
  return { 'image/png': 'PNG', 'image/jpeg': 'JPEG', 'image/webp': 'WebP', 'image/gif': 'GIF' }[type]
}

/** Such as `PNG image, 640x480 pixels, 10240 bytes`. */
export function describeImage({ type, width, height, sizeBytes }: ImageFacts): string {
  return `${nameOfType(type)} image, ${width}x${height} pixels, ${sizeBytes} bytes`
}

/** Reads type and dimensions from the bytes of an image, and checks that it is whole. */
export function readImage(bytes: Uint8Array): Result<ImageFacts, string> {
  if (bytes.length > imageMaxBytes) return fail(`an image may have at most ${imageMaxBytes} bytes`)
  const read = readPng(bytes) ?? readJpeg(bytes) ?? readGif(bytes) ?? readWebp(bytes)
  if (read === null) return fail('the bytes are no whole PNG, JPEG, WebP or GIF image')
  const { width, height } = read
  if (width < 1 || height < 1 || width > imageMaxPixels || height > imageMaxPixels) {
    return fail(`an image of ${width}x${height} pixels; each side may have 1 to ${imageMaxPixels}`)
  }
  return { ok: true, value: { ...read, sizeBytes: bytes.length } }
}

type Header = Pick<ImageFacts, 'type' | 'width' | 'height'>

function readPng(bytes: Uint8Array): Header | null {
  if (!hasAt(bytes, 0, '\x89PNG\r\n\x1a\n') || !hasAt(bytes, 12, 'IHDR')) return null
  // The end must be that of the file: nothing may follow, such as another format.
  if (!hasAt(bytes, bytes.length - 8, 'IEND\xae\x42\x60\x82')) return null
  if (bytes.length < 33) return null
  const view = viewOf(bytes)
  return { type: 'image/png', width: view.getUint32(16), height: view.getUint32(20) }
}

/** Phones write more behind the end, such as a depth map or a second picture; it is ignored, as decoders do. */
function readJpeg(bytes: Uint8Array): Header | null {
  if (!hasAt(bytes, 0, '\xff\xd8\xff')) return null
  const view = viewOf(bytes)
  let header: Header | null = null
  let hasScan = false
  // Segments: 0xff, marker, length of the rest. The frame header (SOF0 to SOF15) has the dimensions.
  for (let at = 2; at + 1 < bytes.length && bytes[at] === 0xff; ) {
    const marker = view.getUint8(at + 1)
    if (marker === 0xd9) return hasScan ? header : null
    if (marker === 0xff) {
      at += 1
      continue
    }
    const length = at + 4 <= bytes.length ? view.getUint16(at + 2) : 0
    // Markers without a length have no place between segments.
    if (length < 2 || marker < 0xc0 || (marker >= 0xd0 && marker <= 0xd8)) return null
    if (marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)) {
      if (header !== null || at + 9 > bytes.length) return null
      header = { type: 'image/jpeg', width: view.getUint16(at + 7), height: view.getUint16(at + 5) }
    }
    at += 2 + length
    if (marker === 0xda) {
      hasScan = true
      at = findScanEnd(bytes, at)
    }
  }
  return null
}

/** Position of the marker behind compressed data, in which 0xff is followed by 0 or a restart marker. */
function findScanEnd(bytes: Uint8Array, from: number): number {
  for (let at = bytes.indexOf(0xff, from); at >= 0; at = bytes.indexOf(0xff, at + 2)) {
    const marker = bytes[at + 1] ?? 0
    if (marker !== 0 && (marker < 0xd0 || marker > 0xd7)) return at
  }
  return bytes.length
}

/** Decoders enlarge the screen of the header to its frames, so the larger of both counts. */
function readGif(bytes: Uint8Array): Header | null {
  if (!hasAt(bytes, 0, 'GIF87a') && !hasAt(bytes, 0, 'GIF89a')) return null
  if (bytes.length < 14 || bytes.at(-1) !== 0x3b) return null
  const view = viewOf(bytes)
  let [width, height] = [view.getUint16(6, true), view.getUint16(8, true)]
  let at = 13 + colorTableBytes(view.getUint8(10))
  // Blocks: an extension (0x21) or a frame (0x2c), each with sub-blocks of data.
  while (at < bytes.length - 1) {
    if (bytes[at] === 0x2c && at + 11 <= bytes.length) {
      width = Math.max(width, view.getUint16(at + 1, true) + view.getUint16(at + 5, true))
      height = Math.max(height, view.getUint16(at + 3, true) + view.getUint16(at + 7, true))
      at += 11 + colorTableBytes(view.getUint8(at + 9))
    } else if (bytes[at] === 0x21) at += 2
    else return null
    for (let size = bytes[at] ?? 0; size > 0; size = bytes[at] ?? 0) at += size + 1
    at += 1
  }
  // The last byte is the end, not one of a block.
  return at === bytes.length - 1 ? { type: 'image/gif', width, height } : null
}

function colorTableBytes(flags: number): number {
  return (flags & 0x80) === 0 ? 0 : 3 * 2 ** ((flags & 7) + 1)
}

function readWebp(bytes: Uint8Array): Header | null {
  if (bytes.length < 30 || !hasAt(bytes, 0, 'RIFF') || !hasAt(bytes, 8, 'WEBP')) return null
  const view = viewOf(bytes)
  if (view.getUint32(4, true) + 8 !== bytes.length) return null
  const type = 'image/webp'
  if (hasAt(bytes, 12, 'VP8X')) {
    const side = (at: number): number => view.getUint16(at, true) + view.getUint8(at + 2) * 0x10000 + 1
    return { type, width: side(24), height: side(27) }
  }
  if (hasAt(bytes, 12, 'VP8L') && view.getUint8(20) === 0x2f) {
    const bits = view.getUint32(21, true)
    return { type, width: (bits & 0x3fff) + 1, height: ((bits >>> 14) & 0x3fff) + 1 }
  }
  if (!hasAt(bytes, 12, 'VP8 ') || !hasAt(bytes, 23, '\x9d\x01\x2a')) return null
  return { type, width: view.getUint16(26, true) & 0x3fff, height: view.getUint16(28, true) & 0x3fff }
}

function hasAt(bytes: Uint8Array, at: number, text: string): boolean {
  if (at < 0 || at + text.length > bytes.length) return false
  for (let index = 0; index < text.length; index += 1) {
    if (bytes[at + index] !== text.charCodeAt(index)) return false
  }
  return true
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

function decodeBase64(text: string): Uint8Array | null {
  if (text.length % 4 !== 0 || !/^[A-Za-z0-9+/]+={0,2}$/.test(text)) return null
  const characters = atob(text)
  // A callback for each character would take a hundred times as long.
  const bytes = new Uint8Array(characters.length)
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = characters.charCodeAt(at)
  return bytes
}

function fail(error: string): Result<never, string> {
  return { ok: false, error }
}
