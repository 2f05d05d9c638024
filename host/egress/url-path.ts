/**
 * Normalizes URL paths and detects paths that servers read differently. A rule about paths is reliable only for
 * unambiguous ones.
 */

/** Encoded separators and control characters, and a percent sign that starts a double encoding. */
const hidden = /%(2f|5c|0[0-9a-f]|1[0-9a-f]|7f|25[0-9a-f]{2})/i

/**
 * False for ambiguous paths: empty and dot segments, parameters (`;`), backslashes, encoded separators, double,
 * malformed or non-UTF-8 encoding.
 * @param path starts with `/`; may include a query
 */
export function isClearPath(path: string): boolean {
  const plain = withoutQuery(path)
  if (!plain.startsWith('/') || /[\\;\s\p{Cc}]/u.test(plain) || hidden.test(plain)) return false
  if (/%(?![0-9a-f]{2})/i.test(plain) || !isUtf8(plain)) return false
  const [, ...segments] = decodeUnreserved(plain).split('/')
  return segments.every((segment, at) => {
    const isLast = at === segments.length - 1
    return segment !== '.' && segment !== '..' && (segment !== '' || isLast)
  })
}

/** Some servers decode invalid UTF-8: `%c0%ae` as a dot, `%c0%af` as a slash. */
function isUtf8(path: string): boolean {
  try {
    decodeURIComponent(path)
    return true
  } catch {
    return false
  }
}

/** Without its query. Letters, digits and `-._~` are decoded; other escapes are in upper case. */
export function plainUrlPath(path: string): string {
  return encodeUnsafe(decodeUnreserved(withoutQuery(path)))
}

function withoutQuery(path: string): string {
  return path.split(/[?#]/, 1)[0] ?? ''
}

function decodeUnreserved(path: string): string {
  return path.replaceAll(/%[0-9a-f]{2}/gi, (code) => {
    const character = String.fromCharCode(Number.parseInt(code.slice(1), 16))
    return /[A-Za-z0-9._~-]/.test(character) ? character : code.toUpperCase()
  })
}

/** Encodes characters that a person may write in a rule and a URL must escape. */
function encodeUnsafe(path: string): string {
  return path
    .toWellFormed()
    .replaceAll(/[^\x21-\x7e]|["<>^`{|}]/gu, (character) => encodeURIComponent(character))
}
