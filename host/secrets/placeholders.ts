/**
 * Finds and replaces placeholders of secrets, `{{NAME}}`, in request headers, also inside the base64 of Basic
 * credentials. Knows no secrets; the caller provides the values.
 */

/** The name in a placeholder: as the configuration spells it. */
const placeholder = /\{\{([A-Z][A-Z0-9_]{0,63})\}\}/g
/** Also in addresses, where the braces are often escaped. */
const inAddress = /(?:\{|%7b){2}([A-Z][A-Z0-9_]{0,63})(?:\}|%7d){2}/i
const basic = /^(basic +)([A-Za-z0-9+/_-]+={0,2}) *$/i

/** How the guest writes the secret `name`. */
export function placeholderOf(name: string): string {
  return `{{${name}}}`
}

/** Names of the placeholders in one header's value, each once. */
export function findPlaceholders(value: string): string[] {
  const inside = openBasic(value)?.text ?? ''
  return [...new Set([...namesIn(value), ...namesIn(inside)])]
}

/** The name of a placeholder in an address, where none is ever replaced; null when there is none. */
export function findInAddress(address: string): string | null {
  return inAddress.exec(address)?.[1] ?? null
}

/** @param valueFor the value of each name from {@link findPlaceholders} */
export function replacePlaceholders(value: string, valueFor: (name: string) => string): string {
  const credentials = openBasic(value)
  if (credentials !== null && namesIn(credentials.text).length > 0) {
    return `${credentials.head}${Buffer.from(replaceIn(credentials.text, valueFor)).toString('base64')}`
  }
  return replaceIn(value, valueFor)
}

function namesIn(text: string): string[] {
  return [...text.matchAll(placeholder)].map(([, name = '']) => name)
}

function replaceIn(text: string, valueFor: (name: string) => string): string {
  return text.replaceAll(placeholder, (_, name: string) => valueFor(name))
}

/** User and password of Basic credentials; null for any other value. */
function openBasic(value: string): { head: string; text: string } | null {
  const [, head, encoded] = basic.exec(value) ?? []
  if (head === undefined || encoded === undefined) return null
  return { head, text: Buffer.from(encoded, 'base64').toString('utf8') }
}
