/** Truncates long text in its middle, with a note of how much is missing. */

/**
 * `text` in at most `maxChars` characters; never splits a surrogate pair.
 * @param more text after the number of missing characters, such as where they can be read
 */
export function truncateMiddle(text: string, maxChars: number, more = ''): string {
  if (text.length <= maxChars) return text
  const note = `\n[… ${text.length - maxChars} characters and more cut${more} …]\n`
  const room = Math.max(0, maxChars - note.length)
  if (room === 0) return text.slice(0, maxChars).toWellFormed()
  const head = Math.ceil(room / 2)
  const cut = `${text.slice(0, head)}${note}${text.slice(text.length - (room - head))}`
  return cut.toWellFormed()
}

/** `text` without lone surrogates and within `maxChars`. */
export function truncate(text: string, maxChars: number): string {
  const plain = text.toWellFormed()
  return plain.length <= maxChars
    ? plain
    : `${plain.slice(0, maxChars - 1).toWellFormed()}…`.slice(0, maxChars)
}

/** `text` within `maxChars` and, as JSON in UTF-8, within `maxBytes`: text of control characters grows sixfold there. */
export function truncateJson(text: string, maxChars: number, maxBytes: number): string {
  let bound = truncate(text, maxChars)
  while (Buffer.byteLength(JSON.stringify(bound)) > maxBytes)
    bound = truncate(bound, Math.floor(bound.length / 2))
  return bound
}
