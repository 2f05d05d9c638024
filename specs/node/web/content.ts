/**
 * What a page's bytes are, by the server's word and by what they begin with, and their text by its charset. Refuses what
 * is no text.
 */

import type { Result } from '#specs/protocol/error.ts'
import { parsePayload } from '../frames.ts'

export type ContentKind = 'html' | 'json' | 'text'

/** Beyond these JSON is given as it came: indentation grows with the depth. */
const prettyMaxChars = 256 * 1024
const prettyMaxDepth = 48

/** Types that are text whatever their first word says. */
const textTypes =
  /^(?:application\/(?:xml|javascript|ecmascript|x-javascript|yaml|x-yaml|toml|sql|graphql|x-sh|x-ndjson|rtf|x-www-form-urlencoded|[\w.-]+\+(?:xml|yaml))|image\/svg\+xml|message\/\S+)$/

/** @param header `content-type` as it came. Null: of what it names nothing can be read as text; `unknown`: it names nothing. */
export function kindOfType(header: string | undefined): ContentKind | 'unknown' | null {
  const type = (header ?? '').split(';', 1)[0]?.trim().toLowerCase() ?? ''
  if (type === '' || type === 'application/octet-stream' || type === 'binary/octet-stream') return 'unknown'
  if (type === 'text/html' || type === 'application/xhtml+xml') return 'html'
  if (/^(?:application|text)\/(?:json|[\w.-]+\+json)$/.test(type)) return 'json'
  return type.startsWith('text/') || textTypes.test(type) ? 'text' : null
}

/** Text of a kind, or in words what the bytes are instead. */
export function readText(
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

/** Indented where it is JSON within bounds; unchanged otherwise. */
export function prettyJson(text: string): string {
  if (text.length > prettyMaxChars) return text
  const parsed = parsePayload(Buffer.from(text.replace(/^\ufeff/, '')), prettyMaxDepth)
  return parsed.ok ? JSON.stringify(parsed.value, null, 2) : text
}

function binaryKind(bytes: Buffer): string | null {
  if (bytes.subarray(0, 5).toString('latin1') === '%PDF-') return 'application/pdf'
  return bytes.subarray(0, 8_192).includes(0) ? 'binary data' : null
}

/** A mark at the beginning wins over the server's word, and that over the page's own. */
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
  // A page that says so in bytes that are read one by one is not in it.
  const said = ofMeta ?? ofXml ?? null
  return said !== null && /^utf-?16/i.test(said) ? 'utf-8' : said
}

/** Without a charset, or with one that is not known: UTF-8, or where it is none what browsers take it for. */
function decode(bytes: Buffer, charset: string | null): string {
  if (charset !== null) {
    try {
      return new TextDecoder(charset).decode(bytes)
    } catch {
      // Not known by that name.
    }
  }
  try {
    // The last character may have been cut.
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes, { stream: true })
  } catch {
    return new TextDecoder('windows-1252').decode(bytes)
  }
}
