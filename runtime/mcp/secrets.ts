/** What of a server's configuration may be a secret, taken out of the words in which its failures are told. */
import type { McpServerConfig } from './config.ts'

/** Shorter values are no secrets: nobody's words would survive their being taken out. */
const secretMinChars = 8
const shown = '[secret]'
/** Stands for a secret that is put in elsewhere, and says which. */
const placeholder = /^\{\{[A-Z][A-Z0-9_]*\}\}$/

/** Takes the values of variables, of headers and of the address's query out of a text, as they are and as JSON and addresses write them. */
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
  // The longest first: one may be a part of another.
  const all = [...new Set(forms)].toSorted((a, b) => b.length - a.length)
  return (text) => all.reduce((rest, form) => rest.replaceAll(form, shown), text)
}
