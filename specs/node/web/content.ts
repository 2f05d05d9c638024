/**
 * Determines the type of a page's bytes from the server's header and their beginning, and decodes text by its
 * charset. Refuses binary content.
 */

import type { Result } from '#specs/protocol/error.ts'
import { parsePayload } from '../frames.ts'

export type ContentKind = 'html' | 'json' | 'text'

/** JSON beyond these limits is returned unchanged: indentation grows with depth. */
const prettyMaxChars = 256 * 1024
const prettyMaxDepth = 48

/** Text types outside of `text/`. */
const textTypes =
  /^(?:application\/(?:xml|javascript|ecmascript|x-javascript|yaml|x-yaml|toml|sql|graphql|x-sh|x-ndjson|rtf|x-www-form-urlencoded|[\w.-]+\+(?:xml|yaml))|image\/svg\+xml|message\/\S+)$/

/** @param header `content-type` as received. Null: the type cannot be read as text; `unknown`: no type given */
export function kindOfType(header: string | undefined): ContentKind | 'unknown' | null {
  const type = (header ?? '').split(';', 1)[0]?.trim().toLowerCase() ?? ''
  if (type === '' || type === 'application/octet-stream' || type === 'binary/octet-stream') return 'unknown'
  if (type === 'text/html' || type === 'application/xhtml+xml') return 'html'
  if (/^(?:application|text)\/(?:json|[\w.-]+\+json)$/.test(type)) return 'json'
  return type.startsWith('text/') || textTypes.test(type) ? 'text' : null
}

/** Text with its kind, or a description of the binary content. */
export function readContent(
  bytes: Buffer,
  header: string | undefined,
): Result<{ kind: ContentKind; text: string }, string> {
  const named = kindOfType(header)
  if (named === null) return { ok: false, error: (header ?? '').split(';', 1)[0]?.trim() ?? '' }
  const charset = charsetOf(bytes, header, named)
  const isWide = /^utf-?16/i.test(charset ?? '')
  const found = isWide ? null : binaryKind(bytes)
  if (found !== null) return { ok: false, error: found }
  const text = decode(bytes, charset)
  const kind =
    named === 'unknown'
      ? /^\s*<(?:!doctype html|html)\b/i.test(text.slice(0, 1_024))
        ? 'html'
        : 'text'
      : named
  return { ok: true, value: { kind, text } }
}

/** Indents JSON within limits; returns other text unchanged. */
export function prettyJson(text: string): string {
  if (text.length > prettyMaxChars) return text
  const parsed = parsePayload(Buffer.from(text.replace(/^\ufeff/, '')), prettyMaxDepth)
  return parsed.ok ? JSON.stringify(parsed.value, null, 2) : text
}

function binaryKind(bytes: Buffer): string | null {
  if (bytes.subarray(0, 5).toString('latin1') === '%PDF-') return 'application/pdf'
  return bytes.subarray(0, 8_192).includes(0) ? 'binary data' : null
}

/** A byte order mark takes precedence over the server's header, and that over the page's own declaration. */
function charsetOf(bytes: Buffer, header: string | undefined, kind: ContentKind | 'unknown'): string | null {
  if (bytes[0] === 0xff && bytes[1] === 0xfe) return 'utf-16le'
  if (bytes[0] === 0xfe && bytes[1] === 0xff) return 'utf-16be'
  const named = /;\s*charset\s*=\s*"?([\w.:-]{1,40})/i.exec(header ?? '')?.[1]
  if (named !== undefined) return named
  if (kind === 'json') return 'utf-8'
  const head = bytes.subarray(0, 2_048).toString('latin1')
  const own =
    /<meta[^>]{0,200}?charset\s*=\s*["']?([\w.:-]{1,40})|^<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]{1,40})/i
  const [, ofMeta, ofXml] = own.exec(head) ?? []
  // A page whose declaration is readable byte by byte cannot be UTF-16.
  const said = ofMeta ?? ofXml ?? null
  return said !== null && /^utf-?16/i.test(said) ? 'utf-8' : said
}

/** For a missing or unknown charset: UTF-8, or for invalid UTF-8 the browsers' default. */
function decode(bytes: Buffer, charset: string | null): string {
  if (charset !== null) {
    try {
      return new TextDecoder(charset).decode(bytes)
    } catch {
      // Unknown name.
    }
  }
  try {
    // The last character may be truncated.
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes, { stream: true })
  } catch {
    return new TextDecoder('windows-1252').decode(bytes)
  }
}
