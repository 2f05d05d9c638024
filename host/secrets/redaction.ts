/**
 * Takes secrets out of what comes back from a server, in text and in streams: as sent, and in the forms in which
 * servers echo what they were sent. A server that encodes it in yet another way is not caught.
 */
import { createStreamRedactor, redactedMark, type StreamRedactor } from '../gateway/redact.ts'

/** A shorter piece of base64 would be found in text that has nothing to do with the secret. */
const encodedMinChars = 8

export interface Redaction {
  text(text: string): string
  /**
   * Bytes of a text, before anybody says in which charset it is.
   * @param isCut whether more would have come: what at the end could be the beginning of a secret is left out
   */
  bytes(bytes: Buffer, isCut: boolean): Buffer
  /** A filter for one stream; chunks may cut a secret anywhere. */
  stream(): StreamRedactor
}

/** @param values the secrets themselves, each at least 6 characters */
export function createRedaction(values: readonly string[]): Redaction {
  // Longest first: a form that is part of another must not leave the rest of that one.
  const forms = [...new Set(values.flatMap(formsOf))].sort((a, b) => b.length - a.length)
  const stream = (): StreamRedactor => {
    const [first, ...rest] = [null, ...forms].map((form) => createStreamRedactor(form))
    const through = (bytes: Buffer): Buffer => rest.reduce((left, one) => one.push(left), bytes)
    return {
      push: (chunk) => through(first?.push(chunk) ?? Buffer.alloc(0)),
      end: () =>
        rest.reduce<Buffer>((left, one) => Buffer.concat([one.push(left), one.end()]), Buffer.alloc(0)),
    }
  }
  return {
    text: (text) => forms.reduce((rest, form) => rest.replaceAll(form, redactedMark), text),
    bytes(bytes, isCut) {
      const redactor = stream()
      const known = redactor.push(bytes)
      return isCut ? known : Buffer.concat([known, redactor.end()])
    },
    stream,
  }
}

/** Takes nothing out. */
export const noRedaction: Redaction = createRedaction([])

function formsOf(value: string): string[] {
  const encoded = base64Cores(value)
  return [
    value,
    ...jsonForms(value),
    ...htmlEscapes.map((escapes) => value.replaceAll(/["'&+/<=>`]/g, (one) => escapes[one] ?? one)),
    ...percentForms(value),
    value.replaceAll(/[\\*_`[\]]/g, '\\$&'),
    ...encoded,
    ...encoded.map((text) => text.replaceAll('+', '-').replaceAll('/', '_')),
  ]
}

/** As JavaScript and Python write it, PHP, Go, Gson, and .NET. */
function jsonForms(value: string): string[] {
  const json = JSON.stringify(value).slice(1, -1)
  const unicode = (one: string): string => `\\u00${one.charCodeAt(0).toString(16)}`
  const dotNet = (one: string): string => `\\u00${one.charCodeAt(0).toString(16).toUpperCase()}`
  return [
    json,
    json.replaceAll('/', '\\/'),
    json.replaceAll(/[<>&]/g, unicode),
    json.replaceAll(/[<>&=']/g, unicode),
    value.replaceAll('\\', '\\\\').replaceAll(/["'&+<>`]/g, dotNet),
  ]
}

const angles = { '&': '&amp;', '<': '&lt;', '>': '&gt;' } as const
/** Of most languages, without and with single quotes; of Jinja, Go, Handlebars and Mustache. */
const htmlEscapes: readonly Readonly<Record<string, string>>[] = [
  angles,
  { ...angles, '"': '&quot;' },
  { ...angles, '"': '&quot;', "'": '&#39;' },
  { ...angles, '"': '&quot;', "'": '&#039;' },
  { ...angles, '"': '&quot;', "'": '&#x27;' },
  { ...angles, '"': '&#34;', "'": '&#39;' },
  { ...angles, '"': '&#34;', "'": '&#39;', '+': '&#43;' },
  { ...angles, '"': '&quot;', "'": '&#x27;', '`': '&#x60;', '=': '&#x3D;' },
  { ...angles, '"': '&quot;', "'": '&#39;', '`': '&#x60;', '=': '&#x3D;', '/': '&#x2F;' },
]

/** With and without the slash and what RFC 3986 reserves besides, as forms write a space, in both cases of hexadecimal. */
function percentForms(value: string): string[] {
  const plain = encodeURIComponent(value)
  const strict = plain.replaceAll(/[!'()*]/g, (one) => `%${one.charCodeAt(0).toString(16).toUpperCase()}`)
  const forms = [plain, strict].flatMap((form) => [form, form.replaceAll('%2F', '/')])
  const spaced = [...forms, ...forms.map((form) => form.replaceAll('%20', '+'))]
  return [...spaced, ...spaced.map((form) => form.replaceAll(/%[0-9A-F]{2}/g, (code) => code.toLowerCase()))]
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
