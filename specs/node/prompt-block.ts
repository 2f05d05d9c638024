/** Untrusted text for a model, in a block that it cannot leave. */

/**
 * `text` between an opening and a closing tag, each alone on its line. A closing tag of the same name inside is written
 * `<\/name>`, with spaces in it too: models are not strict about them.
 * @param attributes behind the opening tag's name, with a space before them
 */
export function block(tag: string, text: string, attributes = ''): string {
  const inert = text.replaceAll(new RegExp(`<(\\s*)/(?=\\s*${tag}\\b)`, 'gi'), '<$1\\/')
  return `<${tag}${attributes}>\n${inert}\n</${tag}>`
}

/** `text` on one line, where a line break would start a new item. */
export function oneLine(text: string): string {
  return text.replaceAll(/\s+/g, ' ').trim()
}
