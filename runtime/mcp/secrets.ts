/** Redacts possible secrets of a server's configuration from its error messages. */
import type { McpServerConfig } from './config.ts'

/** Shorter values are not redacted: too much other text would match. */
const secretMinChars = 8
const shown = '[secret]'
/** Placeholder for a secret that is inserted elsewhere; names the secret. */
const placeholder = /^\{\{[A-Z][A-Z0-9_]*\}\}$/

/**
 * Redacts the values of variables, of headers and of the address's query in a text, plain and as encoded in JSON and
 * addresses.
 */
export function hideSecrets({ env = {}, headers = {}, url }: McpServerConfig): (text: string) => string {
  const address = url === undefined ? null : URL.parse(url)
  const words = [
    ...Object.values(env),
    ...Object.values(headers).flatMap((value) => [value, ...value.split(/\s+/)]),
    ...(address?.searchParams.values() ?? []),
  ]
  const forms = words
    .filter((word) => word.length >= secretMinChars && !placeholder.test(word))
    .flatMap((word) => [word, JSON.stringify(word).slice(1, -1), encodeURIComponent(word.toWellFormed())])
  // Longest first: one value may be a part of another.
  const all = [...new Set(forms)].toSorted((a, b) => b.length - a.length)
  return (text) => all.reduce((rest, form) => rest.replaceAll(form, shown), text)
}
