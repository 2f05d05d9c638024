/**
 * Takes keys and secrets out of what comes back from a server, in text and in streams: as sent, and in the forms in which
 * servers echo what they were sent. A server that encodes it in yet another way is not caught.
 */

export const redactedMark = '[redacted]'

/** A shorter encoded form would be found in text that has nothing to do with the secret. */
const encodedMinChars = 8

/** A filter for one stream; bytes that could be the beginning of a secret are held until the next chunk. */
interface StreamRedactor {
  push(chunk: Uint8Array): Buffer
  /** What was held at the end. */
  end(): Buffer
}

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

/** @param values the secrets themselves; the encoded forms of one that is too short are not looked for */
export function createRedaction(values: readonly string[]): Redaction {
  return redactForms(values.flatMap(formsOf))
}

/** Takes nothing out. */
export const noRedaction: Redaction = createRedaction([])

/** @param key null where there is none */
export function createKeyRedaction(key: string | null): Redaction {
  return key === null ? noRedaction : createRedaction([key])
}

/** Takes exactly these strings out, of two that overlap the first, of two that begin together the longer. Exported for tests. */
export function redactForms(given: readonly string[]): Redaction {
  const forms = [...new Set(given)].filter((form) => form !== '').sort((a, b) => b.length - a.length)
  // Bytes as characters of the same number: one expression then searches any chunk.
  const byteForms = forms.map((form) => Buffer.from(form).toString('latin1'))
  const [inText, inBytes] = [forms, byteForms].map(patternOf)
  const stream = (): StreamRedactor => createStream(byteForms, inBytes ?? null)
  return {
    text: (text) => (inText ? text.replaceAll(inText, redactedMark) : text),
    bytes(bytes, isCut) {
      const redactor = stream()
      const known = redactor.push(bytes)
      return isCut ? known : Buffer.concat([known, redactor.end()])
    },
    stream,
  }
}

function patternOf(forms: readonly string[]): RegExp | null {
  if (forms.length === 0) return null
  return new RegExp(forms.map((form) => form.replaceAll(/[\\^$.*+?()[\]{}|/-]/g, '\\$&')).join('|'), 'g')
}

function createStream(forms: readonly string[], pattern: RegExp | null): StreamRedactor {
  if (pattern === null) return { push: (chunk) => asBuffer(chunk), end: () => Buffer.alloc(0) }
  let held = ''
  return {
    push(chunk) {
      const text = held + asBuffer(chunk).toString('latin1')
      let out = ''
      let from = 0
      let holdAt = text.length - heldLength(text, forms)
      for (const { 0: found, index } of text.matchAll(pattern)) {
        // A longer form may start here and continue in later data.
        if (index >= holdAt) break
        out += text.slice(from, index) + redactedMark
        from = index + found.length
        if (from > holdAt) holdAt = text.length - heldLength(text.slice(from), forms)
      }
      held = text.slice(holdAt)
      return Buffer.from(out + text.slice(from, holdAt), 'latin1')
    },
    end: () => Buffer.from(held.replaceAll(pattern, redactedMark), 'latin1'),
  }
}

function asBuffer(chunk: Uint8Array): Buffer {
  return Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength)
}

/** Length of the longest end of `text` with which some form begins and does not end. */
function heldLength(text: string, forms: readonly string[]): number {
  return forms.reduce((most, form) => {
    for (let length = Math.min(text.length, form.length - 1); length > most; length -= 1)
      if (text.endsWith(form.slice(0, length))) return length
    return most
  }, 0)
}

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
    ...hexForms(value),
    // By characters, not by units: the reversal of a pair is no text.
    ...(value.length < encodedMinChars ? [] : [[...value].reverse().join('')]),
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

function hexForms(value: string): string[] {
  const hex = Buffer.from(value).toString('hex')
  return hex.length < 2 * encodedMinChars ? [] : [hex, hex.toUpperCase()]
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
