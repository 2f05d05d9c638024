/**
 * Paths of URLs in one spelling, and whether all servers would read a path the same way. A rule about paths is only
 * worth something where they do.
 */

/** Encoded: separators, controls, and a percent sign in front of what would be a second encoding. */
const hidden = /%(2f|5c|0[0-9a-f]|1[0-9a-f]|7f|25[0-9a-f]{2})/i

/**
 * False where servers differ: empty and dot segments, parameters (`;`), backslashes, encoded separators, anything encoded
 * twice, badly or not in UTF-8.
 * @param path from its `/`, with or without a query
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

/** Some servers read what is no UTF-8 all the same: `%c0%ae` as a dot, `%c0%af` as a slash. */
function isUtf8(path: string): boolean {
  try {
    decodeURIComponent(path)
    return true
  } catch {
    return false
  }
}

/** Without its query; letters, digits and `-._~` as themselves, all else that is encoded in upper case. */
export function plainPath(path: string): string {
  return encodeForeign(decodeUnreserved(withoutQuery(path)))
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

/** What a person may write in a rule and a URL holds encoded. */
function encodeForeign(path: string): string {
  return path
    .toWellFormed()
    .replaceAll(/[^\x21-\x7e]|["<>^`{|}]/gu, (character) => encodeURIComponent(character))
}
