/** Numbers, times and tables for people. */

/** `0.4 s`, `12 s`, `3 min 5 s`. */
export function formatDuration(ms: number): string {
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`
  const seconds = Math.round(ms / 1000)
  return seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`
}

/** `12 B`, `3.4 kB`, `120 MB`, in powers of ten. */
export function formatBytes(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB']
  let value = bytes
  let unit = 0
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000
    unit += 1
  }
  return `${unit === 0 || value >= 99.5 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`
}

/** `$0.0021`, in US dollars. */
export function formatCost(usd: number): string {
  return `$${usd.toFixed(4)}`
}

/** `1 file`, `2 files`; `nouns` where the plural is not made by an s. */
export function formatCount(count: number, noun: string, nouns = `${noun}s`): string {
  return `${count} ${count === 1 ? noun : nouns}`
}

/** `now`, `5 min ago`, `3 h ago`, `12 d ago`. */
export function formatAge(ms: number): string {
  const minutes = Math.floor(ms / 60_000)
  if (minutes < 1) return 'now'
  if (minutes < 60) return `${minutes} min ago`
  const hours = Math.floor(minutes / 60)
  return hours < 48 ? `${hours} h ago` : `${Math.floor(hours / 24)} d ago`
}

/** 9999-12-30: later times have no such form, and only damaged files have them. */
const timeMaxMs = 253_402_128_000_000

/** `2026-01-31 12:05 +01:00`: the time of this machine, or of TZ, with its offset from UTC. */
export function formatTime(time: number): string {
  const atMs = Math.min(time, timeMaxMs)
  const offset = -new Date(atMs).getTimezoneOffset()
  // The UTC fields of the shifted time are the local ones.
  const local = new Date(atMs + offset * 60_000).toISOString()
  return `${local.slice(0, 16).replace('T', ' ')} ${zoneOf(offset)}`
}

/** `2026-01-31`, in the same zone. */
export function formatDate(atMs: number): string {
  return formatTime(atMs).slice(0, 10)
}

function zoneOf(offsetMinutes: number): string {
  if (offsetMinutes === 0) return 'UTC'
  const minutes = Math.abs(offsetMinutes)
  const digits = [Math.floor(minutes / 60), minutes % 60].map((part) => String(part).padStart(2, '0'))
  return `${offsetMinutes < 0 ? '-' : '+'}${digits.join(':')}`
}

/** Rows of cells below the names of their columns, as one text with a line feed at its end. */
export function formatTable(columns: readonly string[], rows: readonly (readonly string[])[]): string {
  const table = [columns, ...rows]
  const widths = columns.map((_, at) => Math.max(...table.map((cells) => cells[at]?.length ?? 0)))
  const line = (cells: readonly string[]) => cells.map((cell, at) => cell.padEnd(widths[at] ?? 0)).join('  ')
  return table.map((cells) => `${line(cells).trimEnd()}\n`).join('')
}
