/**
 * Folds a path like the most lenient file system, so that folded letters or dropped characters cannot bypass a rule.
 */

/** Two paths have the same folded path if any file system of a supported host treats them as one. */
export function foldPath(path: string): string {
  return isPlainAscii(path) ? path : path.split('/').map(foldFileName).join('/')
}

/** Folding keeps a single name: characters such as U+FF0F and U+2025 would become `/` and `..`. */
export function foldFileName(name: string): string {
  if (isPlainAscii(name)) return name
  return (
    [bare(bare(name.normalize('NFKC')).normalize('NFKC')), bare(name.normalize('NFC')).normalize('NFC')].find(
      isPlain,
    ) ?? name
  )
}

/** Upper case first: it merges letters that lower case keeps apart, such as ß and ss. */
function bare(text: string): string {
  const visible = text.replace(/\p{Default_Ignorable_Code_Point}/gu, '')
  const folded = visible.toUpperCase().toLowerCase()
  // FAT and NTFS drop trailing dots and spaces, and have a short name for .git.
  const kept = folded.replace(/(?<=[^. ])[. ]+$/, '')
  return kept === 'git~1' ? '.git' : kept
}

function isPlain(name: string): boolean {
  return name !== '' && name !== '.' && name !== '..' && !name.includes('/')
}

/** Most paths, which folding does not change: no capitals, ASCII only, no `~`, no trailing dot or space. */
function isPlainAscii(text: string): boolean {
  return /^[!-@[-`a-}]*$/.test(text) && !/[.](?:\/|$)/.test(text)
}
