/**
 * Takes secrets out of what comes back from a server, in text and in streams: as sent, and in the forms in which
 * servers echo what they were sent. A server that encodes it in yet another way is not caught.
 */
import { createStreamRedactor, redactedMark, type StreamRedactor } from '../gateway/redact.ts'

/** A shorter piece of base64 would be found in text that has nothing to do with the secret. */
const encodedMinChars = 8

export interface Redaction {
  text(text: string): string
  /** A filter for one stream; chunks may cut a secret anywhere. */
  stream(): StreamRedactor
}

/** @param values the secrets themselves, each at least 6 characters */
export function createRedaction(values: readonly string[]): Redaction {
  // Longest first: a form that is part of another must not leave the rest of that one.
  const forms = [...new Set(values.flatMap(formsOf))].sort((a, b) => b.length - a.length)
  return {
    text: (text) => forms.reduce((rest, form) => rest.replaceAll(form, redactedMark), text),
    stream() {
      const [first, ...rest] = [null, ...forms].map((form) => createStreamRedactor(form))
      const through = (bytes: Buffer): Buffer => rest.reduce((left, one) => one.push(left), bytes)
      return {
        push: (chunk) => through(first?.push(chunk) ?? Buffer.alloc(0)),
        end: () =>
          rest.reduce<Buffer>((left, one) => Buffer.concat([one.push(left), one.end()]), Buffer.alloc(0)),
      }
    },
  }
}

/** Takes nothing out. */
export const noRedaction: Redaction = createRedaction([])

function formsOf(value: string): string[] {
  const json = JSON.stringify(value).slice(1, -1)
  const html = value
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
  const markdown = value.replaceAll(/[\\*_`[\]]/g, '\\$&')
  const encoded = base64Cores(value)
  const urlSafe = encoded.map((text) => text.replaceAll('+', '-').replaceAll('/', '_'))
  return [value, json, html, markdown, encodeURIComponent(value), ...encoded, ...urlSafe]
}

/** What of the base64 of any text that holds `value` depends on it alone, at each of the three places in a group. */
function base64Cores(value: string): string[] {
  const bytes = Buffer.from(value)
  return [0, 1, 2]
    .map((offset) => {
      const encoded = Buffer.concat([Buffer.alloc(offset), bytes]).toString('base64')
      return encoded.slice(Math.ceil((offset * 8) / 6), Math.floor(((offset + bytes.length) * 8) / 6))
    })
    .filter((core) => core.length >= encodedMinChars)
}
