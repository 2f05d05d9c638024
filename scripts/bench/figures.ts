/** Figures of a benchmark: percentiles of samples, printed for people or as one JSON object. */

export interface Figure {
  readonly p50: number
  readonly p95: number
  readonly n: number
}

export function figureOf(samples: readonly number[]): Figure {
  const sorted = [...samples].sort((a, b) => a - b)
  const at = (share: number) =>
    round(sorted[Math.min(sorted.length - 1, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN)
  return { p50: at(0.5), p95: at(0.95), n: sorted.length }
}

export function round(value: number): number {
  return Number(value.toPrecision(4))
}

/** `--json` prints the object; otherwise one line each on stdout. */
export function printFigures(figures: Readonly<Record<string, unknown>>): void {
  if (process.argv.includes('--json')) {
    process.stdout.write(`${JSON.stringify(figures)}\n`)
    return
  }
  for (const [name, value] of Object.entries(figures))
    process.stdout.write(`${name.padEnd(24)} ${JSON.stringify(value)}\n`)
}

/** How often a measurement repeats: `count` times, or once with `--quick`, which shows that the benchmark works. */
export function repeats(count: number): number {
  return process.argv.includes('--quick') ? 1 : count
}

/** Progress on stderr. */
export function reportProgress(text: string): void {
  process.stderr.write(`bench: ${text}\n`)
}
