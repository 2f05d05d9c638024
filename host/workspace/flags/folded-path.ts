/** A path as the most forgiving file system takes it: what folds letters or drops characters must not slip past a rule. */

/** Two paths that any file system of a supported host takes for one have the same folded path. */
export function foldPath(path: string): string {
  return isPlainAscii(path) ? path : path.split('/').map(foldName).join('/')
}

/** Folding leaves one plain name: characters such as U+FF0F and U+2025 would become `/` and `..`. */
export function foldName(name: string): string {
  if (isPlainAscii(name)) return name
  return (
    [bare(bare(name.normalize('NFKC')).normalize('NFKC')), bare(name.normalize('NFC')).normalize('NFC')].find(
      isPlain,
    ) ?? name
  )
}

/** Upper case first: it takes letters together that lower case alone keeps apart, such as ß and ss. */
function bare(text: string): string {
  const visible = text.replace(/\p{Default_Ignorable_Code_Point}/gu, '')
  const folded = visible.toUpperCase().toLowerCase()
  // FAT and NTFS drop dots and spaces at the end, and know .git by its short name.
  const kept = folded.replace(/(?<=[^. ])[. ]+$/, '')
  return kept === 'git~1' ? '.git' : kept
}

function isPlain(name: string): boolean {
  return name !== '' && name !== '.' && name !== '..' && !name.includes('/')
}

/** What folding leaves as it is, and most paths are: no capital, nothing beyond ASCII, no `~`, no end in a dot or space. */
function isPlainAscii(text: string): boolean {
  return /^[!-@[-`a-}]*$/.test(text) && !/[.](?:\/|$)/.test(text)
}
