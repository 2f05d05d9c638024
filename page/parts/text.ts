/** Text for the screen: what is untrusted becomes visible, and numbers get their units. Pure. */

/** What draws nothing, moves or reorders other text: controls, bidi, zero-width, tags, lone surrogates. */
const hidden = /[[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]--[\u{fe0f}\n\t]]/gv
const names: Readonly<Record<string, string>> = { '\r': '\\r', '\u001b': '\\e', '\0': '\\0' }

/** Untrusted text with visible escapes; line ends and tabs stay. */
export function visible(text: string): string {
  return text.replace(hidden, escapeOf)
}

/** The same on one line, cut at `maxChars`. */
export function visibleLine(text: string, maxChars = 300): string {
  const cut = text.length > maxChars ? `${text.slice(0, maxChars)}…` : text
  return visible(cut).replaceAll('\n', ' ').replaceAll('\t', ' ')
}

function escapeOf(character: string): string {
  const code = character.codePointAt(0) ?? 0
  const short = code <= 0xff ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u{${code.toString(16)}}`
  return names[character] ?? short
}

const mainArguments = ['command', 'path', 'url', 'query', 'pattern', 'code', 'from', 'question', 'name']

/**
 * The argument that says most about a call, such as its command, path or address, and the others as JSON.
 * @param json arguments of a tool
 * @returns null for arguments without one, and for those that are cut
 */
export function mainArgument(json: string): { readonly value: string; readonly rest: string } | null {
  try {
    const given = JSON.parse(json) as Readonly<Record<string, unknown>>
    for (const name of mainArguments) {
      const { [name]: value, ...rest } = given
      if (typeof value === 'string' && value !== '') return { value, rest: JSON.stringify(rest) }
    }
  } catch {
    // Arguments that are cut are no JSON.
  }
  return null
}

export function bytes(count: number): string {
  if (count < 1024) return `${count} B`
  const units = ['KiB', 'MiB', 'GiB', 'TiB']
  let value = count
  let unit = -1
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024
    unit++
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`
}

export function tokens(count: number): string {
  if (count < 1_000) return String(count)
  if (count < 1_000_000) return `${(count / 1_000).toFixed(count < 10_000 ? 1 : 0)}k`
  return `${(count / 1_000_000).toFixed(count < 10_000_000 ? 1 : 0)}M`
}

export function dollars(amount: number): string {
  if (amount === 0) return '$0'
  return amount < 0.01 ? `$${amount.toFixed(4)}` : `$${amount.toFixed(2)}`
}

export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`
  if (ms < 10_000) return `${(ms / 1_000).toFixed(1)} s`
  const seconds = Math.round(ms / 1_000)
  if (seconds < 60) return `${seconds} s`
  const minutes = Math.floor(seconds / 60)
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`
  const hours = Math.floor(minutes / 60)
  if (hours < 48) return `${hours} h ${minutes % 60} min`
  return `${Math.floor(hours / 24)} days`
}

/** How long ago, in one unit. */
export function ago(at: number, now: number): string {
  const seconds = Math.max(0, Math.round((now - at) / 1_000))
  if (seconds < 60) return 'just now'
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ago`
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h ago`
  const days = Math.floor(seconds / 86_400)
  return days === 1 ? 'yesterday' : `${days} days ago`
}

/** Made once: a format takes far longer to make than to use, and a log has thousands of times. */
const clockFormat = new Intl.DateTimeFormat(undefined, {
  ...{ hour: '2-digit', minute: '2-digit', second: '2-digit' },
  hourCycle: 'h23',
})
const dateTimeFormat = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' })

export function clock(at: number): string {
  return clockFormat.format(at)
}

export function dateTime(at: number): string {
  return dateTimeFormat.format(at)
}

/** On which host of its fleet a run is, which gave its own name. */
export function hostWords({
  host,
  end,
}: {
  readonly host?: { readonly name: string; readonly since: number } | null | undefined
  readonly end: unknown
}): string {
  if (host != null) return `${visibleLine(host.name, 100)}, since ${dateTime(host.since)}`
  return end === null ? 'none: it waits for a host or for a person' : 'none: the run has ended'
}

export function count(number: number, noun: string, plural = `${noun}s`): string {
  return `${number.toLocaleString('en')} ${number === 1 ? noun : plural}`
}

/** JSON text with indentation; the text itself where it is no JSON. */
export function prettyJson(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2)
  } catch {
    return text
  }
}

export function lastLines(text: string, lines: number): string {
  return text.trimEnd().split('\n').slice(-lines).join('\n')
}
